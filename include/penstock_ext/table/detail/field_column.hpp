// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/extents.hpp>
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/detail/arrow_type.hpp>
#include <penstock_ext/table/detail/column_plan.hpp>
#include <penstock_ext/table/table_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A column as the values of a field: by these rules, and no others.
/// - Lists inside each other are the field's extents, one each, or one list is all of them.
/// - Lists of variable length need one length in all rows; `dyn` takes that of the first row.
/// - A fixed_size_binary is the bytes of the whole field, of any type, as the machine has them.
class field_column {
 public:
  /// Throws `missing_column`, `column_type_mismatch` and `column_shape_mismatch`. `where` is said
  /// in messages, and must outlive this.
  field_column(const ArrowSchema& table, std::string_view where, column_wish wish)
      : where_(where), wish_(std::move(wish)), plan_(find_column(table, where, wish_.column)) {
    open_lists(plan_, where_, expected());
    is_bytes_ = plan_.element.kind == arrow_kind::fixed_binary && plan_.lists.empty();
    if (!is_bytes_ && !wish_.takes(plan_.element)) refuse_type(where_, plan_, expected());
    const std::size_t rank = wish_.extents.size();
    const bool is_flat = plan_.lists.size() == 1 && rank > 1;
    if (!is_bytes_ && !is_flat && plan_.lists.size() != rank) refuse_shape(plan_.words);
    // A list of variable length is as the field says, where that does.
    for (std::size_t d = 0; d < plan_.lists.size(); ++d) {
      std::uint64_t& length = plan_.lists[d].length;
      if (length > 0) continue;
      if (is_flat) {
        length = fixed_product().second == 0 ? fixed_product().first : 0;
      } else if (wish_.extents[d] != dyn) {
        length = wish_.extents[d];
      }
    }
    if (is_settled()) settle();
  }

  /// Whether all lengths are known. If not, the first row says the others, see `settle`.
  [[nodiscard]] bool is_settled() const noexcept { return is_bytes_ || plan_.row_elements() > 0; }

  /// Once all lengths are known: what the field's extents are. Throws `column_shape_mismatch`.
  void settle() {
    if (!is_settled()) refuse_shape("no row, which says how long its lists are");
    const std::size_t rank = wish_.extents.size();
    const auto [product, dynamic] = fixed_product();
    extents_.assign(wish_.extents.begin(), wish_.extents.end());
    has_extents_ = true;
    if (!is_bytes_ && plan_.lists.size() == rank) {
      for (std::size_t d = 0; d < rank; ++d) {
        extents_[d] = static_cast<std::size_t>(plan_.lists[d].length);
        if (wish_.extents[d] != dyn && wish_.extents[d] != extents_[d]) refuse_shape(plan_.words);
      }
      return;
    }
    const std::uint64_t bytes =
        is_bytes_ ? plan_.element.size : plan_.lists[0].length * wish_.element_bytes;
    const std::uint64_t fixed_bytes = product * wish_.element_bytes;
    if (dynamic > 1 || bytes % fixed_bytes != 0 || (dynamic == 0 && bytes != fixed_bytes)) {
      refuse_shape(plan_.words);
    }
    for (std::size_t& extent : extents_) {
      if (extent == dyn) extent = static_cast<std::size_t>(bytes / fixed_bytes);
    }
  }

  [[nodiscard]] const column_plan& plan() const noexcept { return plan_; }
  [[nodiscard]] column_plan& plan() noexcept { return plan_; }
  /// What the field asks of it.
  [[nodiscard]] const column_wish& wish() const noexcept { return wish_; }
  /// Whether they are settled: the field's extents.
  [[nodiscard]] bool has_extents() const noexcept { return has_extents_; }
  /// The field's extents, once they are settled.
  [[nodiscard]] const std::vector<std::size_t>& extents() const noexcept { return extents_; }

  /// What to say about a column that is slow to decode; "" for the others.
  [[nodiscard]] std::string warning() const {
    if (plan_.lists.empty() || plan_.element.size != 1) return {};
    const std::string length =
        plan_.row_elements() == 0 ? "" : "(" + std::to_string(plan_.row_elements()) + ")";
    return std::string{where_} + ": column \"" + plan_.name + "\" is " + plan_.words +
           ": Parquet decodes lists of bytes one by one, which takes many times as long as "
           "fixed_size_binary" +
           length + " of the same bytes: write it as that";
  }

 private:
  // The product of the fixed extents, or a number that no list is as long as; and how many extents
  // are dynamic.
  [[nodiscard]] std::pair<std::uint64_t, std::size_t> fixed_product() const noexcept {
    constexpr std::uint64_t too_long = std::uint64_t{1} << 45;
    std::pair<std::uint64_t, std::size_t> found{1, 0};
    for (const std::size_t extent : wish_.extents) {
      if (extent == dyn) {
        ++found.second;
      } else {
        found.first = extent > too_long / found.first ? too_long : found.first * extent;
      }
    }
    return found;
  }

  [[nodiscard]] std::string expected() const {
    std::string text = wish_.element;
    for (const std::size_t extent : wish_.extents) {
      text += extent == dyn ? "[any]" : "[" + std::to_string(extent) + "]";
    }
    return text;
  }

  [[noreturn]] void refuse_shape(const std::string& found) const {
    throw column_shape_mismatch(
        std::string{where_}, plan_.name, expected(), found,
        "lists inside each other are the field's extents, or one list is all of them; of one that "
        "is all, or of a fixed_size_binary, one extent may be dyn");
  }

  std::string_view where_;
  column_wish wish_;
  column_plan plan_;
  bool is_bytes_ = false;
  bool has_extents_ = false;
  std::vector<std::size_t> extents_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
