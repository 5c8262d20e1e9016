// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/extents.hpp>
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/detail/arrow_type.hpp>
#include <penstock_ext/table/table_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a field asks of its column.
struct column_wish {
  std::string column;   // its name
  std::string element;  // the element's type for people: "float32"
  std::size_t element_bytes = 0;
  bool (*takes)(const arrow_type&) = nullptr;  // whether an element may be of this type
  std::span<const std::size_t> extents = {};   // of the field, each fixed or `dyn`
};

/// A list around the elements of a column.
struct list_level {
  arrow_kind kind = arrow_kind::fixed_list;
  std::uint64_t length = 0;  // 0: as long as the list of the first row, which was not seen yet
};

/// A step from a table, or a struct in it, to one of its members.
struct member_step {
  std::size_t child = 0;     // which one
  std::int64_t members = 0;  // of how many
};

/// Where a column is in its table, and what its rows are made of.
struct column_plan {
  std::string name = {};
  std::string words = {};              // its type, for people
  std::vector<member_step> path = {};  // the way to it: from the table, through structs
  const ArrowSchema* node = nullptr;   // its type, at the end of that way
  std::vector<list_level> lists = {};  // the outermost first
  arrow_type element = {};
  bool is_dictionary = false;  // whether the elements are indices

  /// How many elements a row has, all lists taken together.
  [[nodiscard]] std::uint64_t row_elements() const noexcept {
    std::uint64_t all = 1;
    for (const list_level& one : lists) all *= one.length;
    return all;
  }
};

/// The child of `table` called `name`, or of structs in it: "image.bytes". Throws `missing_column`.
[[nodiscard]] inline column_plan find_column(const ArrowSchema& table, std::string_view where,
                                             const std::string& name) {
  column_plan plan{.name = name};
  const auto child_of = [](const ArrowSchema& node, std::string_view wanted, std::size_t& count) {
    std::size_t found = 0;
    count = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(node.n_children); ++i) {
      const char* const own = node.children[i]->name;
      if (wanted == (own == nullptr ? "" : own) && count++ == 0) found = i;
    }
    return found;
  };
  const ArrowSchema* node = &table;
  std::string_view rest = name;
  while (true) {
    std::size_t count = 0;
    std::string_view part = rest;
    std::size_t child = child_of(*node, part, count);
    // The longest beginning of the name up to a dot that is a struct's name.
    while (count == 0 && part.rfind('.') != std::string_view::npos) {
      part = part.substr(0, part.rfind('.'));
      child = child_of(*node, part, count);
      if (count == 1 &&
          (node->children[child]->dictionary != nullptr ||
           arrow_type_of(node->children[child]->format).kind != arrow_kind::structure)) {
        count = 0;
      }
    }
    if (count != 1) {
      throw missing_column(
          std::string{where}, name, "one such column",
          (count == 0 ? "" : std::to_string(count) + " among ") + arrow_columns(table),
          "name it in .columns, or select and rename columns before");
    }
    plan.path.push_back({child, node->n_children});
    node = node->children[child];
    if (part.size() == rest.size()) break;
    rest.remove_prefix(part.size() + 1);
  }
  plan.node = node;
  plan.words = arrow_words(*node);
  return plan;
}

/// Throws `column_type_mismatch`, with what to do about the type.
[[noreturn]] inline void refuse_type(std::string_view where, const column_plan& plan,
                                     const std::string& expected) {
  std::string_view advice = "convert the column, or name its own type in the record";
  const arrow_kind kind = plan.element.kind;
  if (plan.is_dictionary) {
    advice = "decode the dictionary before, in pyarrow by column.cast(column.type.value_type)";
  } else if (kind == arrow_kind::view) {
    advice =
        "views have another layout: cast to binary, utf8 or list before, in polars by "
        "to_arrow(compat_level=CompatLevel.oldest())";
  } else if (kind == arrow_kind::binary || kind == arrow_kind::large_binary) {
    advice =
        "rows of different lengths are no field: read them by arrow_blobs, or write "
        "fixed_size_binary";
  }
  throw column_type_mismatch(std::string{where}, plan.name, expected, plan.words,
                             std::string{advice});
}

/// What is inside of the lists of a column. Throws `column_type_mismatch` for dictionaries.
inline void open_lists(column_plan& plan, std::string_view where, const std::string& expected) {
  const ArrowSchema* node = plan.node;
  while (true) {
    plan.element = arrow_type_of(node->format);
    plan.is_dictionary = node->dictionary != nullptr;
    if (plan.is_dictionary) refuse_type(where, plan, expected);
    const arrow_kind kind = plan.element.kind;
    if (kind != arrow_kind::fixed_list && kind != arrow_kind::list &&
        kind != arrow_kind::large_list) {
      return;
    }
    plan.lists.push_back({kind, plan.element.size});
    node = node->children[0];
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
