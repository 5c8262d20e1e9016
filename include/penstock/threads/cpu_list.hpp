// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Cores of a machine by the numbers that Linux gives them: ascending, each once. A value that owns
/// its memory; copying may throw `std::bad_alloc`.
class cpu_list {
 public:
  /// Numbers below this one: more than any kernel can be built for.
  static constexpr unsigned limit = 1U << 16;

  /// No cores.
  cpu_list() = default;
  /// These cores, in any order. Numbers from `limit` on are left out.
  explicit cpu_list(std::vector<unsigned> numbers) : numbers_(std::move(numbers)) {
    std::sort(numbers_.begin(), numbers_.end());
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
    numbers_.erase(std::lower_bound(numbers_.begin(), numbers_.end(), limit), numbers_.end());
  }

  /// The cores of a list as the kernel writes it, "0-3,8,10-11" with or without a line's end.
  /// Nothing if the text is empty, has spaces or a number not below `limit`, or does not ascend.
  [[nodiscard]] static std::optional<cpu_list> parse(std::string_view text) {
    if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    cpu_list read;
    for (unsigned next = 0;;) {  // the least number that may come
      const auto first = number_at(text);
      if (!first || *first < next) return std::nullopt;
      unsigned last = *first;
      if (!text.empty() && text.front() == '-') {
        text.remove_prefix(1);
        const auto end = number_at(text);
        if (!end || *end <= *first) return std::nullopt;
        last = *end;
      }
      for (next = *first; next <= last; ++next) read.numbers_.push_back(next);
      if (text.empty()) return read;
      if (text.front() != ',') return std::nullopt;
      text.remove_prefix(1);
    }
  }

  /// Whether there are none.
  [[nodiscard]] bool empty() const noexcept { return numbers_.empty(); }
  /// How many there are.
  [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }
  /// Their numbers, ascending; valid as long as this list.
  [[nodiscard]] const std::vector<unsigned>& numbers() const noexcept { return numbers_; }

  friend bool operator==(const cpu_list&, const cpu_list&) = default;

 private:
  /// Takes the number that `text` begins with.
  static std::optional<unsigned> number_at(std::string_view& text) noexcept {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || value >= limit) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
  }

  std::vector<unsigned> numbers_;
};

/// The cores that are in both lists.
[[nodiscard]] inline cpu_list common_cores(const cpu_list& a, const cpu_list& b) {
  std::vector<unsigned> both;
  std::set_intersection(a.numbers().begin(), a.numbers().end(), b.numbers().begin(),
                        b.numbers().end(), std::back_inserter(both));
  return cpu_list{std::move(both)};
}

/// The list as the kernel writes it, "0-3,8,10-11"; "" for no cores.
[[nodiscard]] inline std::string to_text(const cpu_list& cores) {
  std::string text;
  const auto& all = cores.numbers();
  for (std::size_t i = 0; i < all.size();) {
    std::size_t last = i;
    while (last + 1 < all.size() && all[last + 1] == all[last] + 1) ++last;
    text += detail::joined({text.empty() ? "" : ",", all[i]});
    if (last != i) text += detail::joined({"-", all[last]});
    i = last + 1;
  }
  return text;
}

/// Whether the workers of a loader are bound to cores next to its device, or why they are not.
enum class core_binding {
  bound,          ///< they are
  not_asked,      ///< `worker_placement::anywhere`
  no_node,        ///< the device has no NUMA node of the host's, or does not know it
  no_workers,     ///< there are none: the consumer reads
  unknown_cores,  ///< the system does not say which cores the node has
  outside_mask,   ///< the process may run on none of the node's cores
  within_node,    ///< the process may run on no others: nothing is to be done
  refused,        ///< the system refused to say the process's cores, or to bind to some of them
};

/// Where the workers of a loader run: see `loader_options::tuning.placement` and
/// `loader::footprint`. A value that owns its memory.
struct worker_cores {
  core_binding binding = core_binding::no_node;  ///< whether they are bound, or why they are not
  std::optional<int> node = {};  ///< the host's NUMA node next to the device, as Linux numbers it
  /// `bound`, `within_node`: those that they run on; `refused`: those that they were to run on, as
  /// far as they are known; else none, and they run anywhere that the process may.
  cpu_list cores = {};
  int error_number = 0;  ///< `refused`: what errno said

  friend bool operator==(const worker_cores&, const worker_cores&) = default;
};

/// A sentence for people: "workers on node 1, cores 8-15", or that they run anywhere and why.
[[nodiscard]] inline std::string to_text(const worker_cores& workers) {
  using detail::joined;
  const int node = workers.node.value_or(-1);
  const std::string cores = to_text(workers.cores);
  switch (workers.binding) {
    case core_binding::bound:
      return joined({"workers on node ", node, ", cores ", cores});
    case core_binding::within_node:
      return joined({"workers on node ", node, ", cores ", cores, ", as the process is allowed"});
    case core_binding::not_asked:
      return "workers anywhere: worker_placement::anywhere was asked for";
    case core_binding::no_node:
      return "workers anywhere: the device has no NUMA node";
    case core_binding::no_workers:
      return "no workers: the consumer reads, anywhere";
    case core_binding::unknown_cores:
      return joined({"workers anywhere: the system does not say which cores node ", node, " has"});
    case core_binding::outside_mask:
      return joined({"workers anywhere: the process may not run on node ", node});
    case core_binding::refused:
      return joined({"workers anywhere: the system refused node ", node,
                     cores.empty() ? "" : ", cores ", cores, ": ",
                     std::strerror(workers.error_number)});
  }
  return {};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
