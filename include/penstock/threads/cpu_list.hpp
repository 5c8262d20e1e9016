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

/// A set of CPU cores by Linux CPU number, in ascending order. A value type that owns its memory.
/// Copying may throw `std::bad_alloc`.
class cpu_list {
 public:
  /// Exclusive upper limit of CPU numbers, larger than in any kernel.
  static constexpr unsigned limit = 1U << 16;

  /// Creates an empty set.
  cpu_list() = default;
  /// Creates a set of `numbers`, which may be unsorted and contain duplicates. Drops numbers that
  /// are not less than `limit`.
  explicit cpu_list(std::vector<unsigned> numbers) : numbers_(std::move(numbers)) {
    std::sort(numbers_.begin(), numbers_.end());
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
    numbers_.erase(std::lower_bound(numbers_.begin(), numbers_.end(), limit), numbers_.end());
  }

  /// Parses a list in kernel format, such as "0-3,8,10-11", with an optional trailing newline.
  /// Returns nothing if the text is empty or contains spaces, if a number is not less than `limit`,
  /// or if the numbers do not ascend.
  [[nodiscard]] static std::optional<cpu_list> parse(std::string_view text) {
    if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    cpu_list read;
    for (unsigned next = 0;;) {  // the smallest number that may follow
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

  /// Returns true if the set is empty.
  [[nodiscard]] bool empty() const noexcept { return numbers_.empty(); }
  /// Returns the number of cores.
  [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }
  /// Returns the CPU numbers in ascending order. The reference is valid as long as this object.
  [[nodiscard]] const std::vector<unsigned>& numbers() const noexcept { return numbers_; }

  friend bool operator==(const cpu_list&, const cpu_list&) = default;

 private:
  /// Parses the number at the start of `text` and removes it from `text`.
  static std::optional<unsigned> number_at(std::string_view& text) noexcept {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || value >= limit) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
  }

  std::vector<unsigned> numbers_;
};

/// Returns the intersection of `a` and `b`.
[[nodiscard]] inline cpu_list common_cores(const cpu_list& a, const cpu_list& b) {
  std::vector<unsigned> both;
  std::set_intersection(a.numbers().begin(), a.numbers().end(), b.numbers().begin(),
                        b.numbers().end(), std::back_inserter(both));
  return cpu_list{std::move(both)};
}

/// Formats a set in kernel format, such as "0-3,8,10-11". Returns "" for an empty set.
[[nodiscard]] inline std::string to_text(const cpu_list& cores) {
  std::string text;
  const auto& all = cores.numbers();
  for (std::size_t i = 0; i < all.size();) {
    std::size_t last = i;
    while (last + 1 < all.size() && all[last + 1] == all[last] + 1) ++last;
    text += detail::str_cat({text.empty() ? "" : ",", all[i]});
    if (last != i) text += detail::str_cat({"-", all[last]});
    i = last + 1;
  }
  return text;
}

/// State of the binding of a loader's workers to the cores of the device's NUMA node.
enum class core_binding {
  bound,          ///< Each worker is bound to cores of the node.
  disabled,       ///< The option is `worker_affinity::anywhere`.
  no_node,        ///< The device reports no host NUMA node.
  no_workers,     ///< The loader has no workers, and the consumer thread reads.
  unknown_cores,  ///< The system does not report the cores of the node.
  not_in_cpuset,  ///< The process may not run on any core of the node.
  within_node,    ///< The process may run only on cores of the node, so workers need not be bound.
  failed,         ///< The system denied reading the affinity or binding a worker.
};

/// The cores on which a loader's workers run (see `loader_options::tuning.affinity` and
/// `loader::footprint`). A value type that owns its memory.
struct affinity_report {
  core_binding binding = core_binding::no_node;  ///< binding state
  std::optional<int> node = {};                  ///< number of the device's NUMA node
  /// The cores of the workers if `bound` or `within_node`. The requested cores, as far as known, if
  /// `failed`. Otherwise empty, because workers run on all cores of the process.
  cpu_list cores = {};
  int error_number = 0;  ///< errno value if `failed`

  friend bool operator==(const affinity_report&, const affinity_report&) = default;
};

/// Formats a report in words, such as "workers on node 1, cores 8-15". If the workers are not
/// bound, the text contains the reason.
[[nodiscard]] inline std::string to_text(const affinity_report& workers) {
  using detail::str_cat;
  const int node = workers.node.value_or(-1);
  const std::string cores = to_text(workers.cores);
  switch (workers.binding) {
    case core_binding::bound:
      return str_cat({"workers on node ", node, ", cores ", cores});
    case core_binding::within_node:
      return str_cat({"workers on node ", node, ", cores ", cores, ", as allowed to the process"});
    case core_binding::disabled:
      return "workers anywhere: worker_affinity::anywhere was requested";
    case core_binding::no_node:
      return "workers anywhere: the device has no NUMA node";
    case core_binding::no_workers:
      return "no workers: the consumer thread reads, on any core";
    case core_binding::unknown_cores:
      return str_cat({"workers anywhere: the system does not report the cores of node ", node});
    case core_binding::not_in_cpuset:
      return str_cat({"workers anywhere: the process may not run on node ", node});
    case core_binding::failed:
      return str_cat({"workers anywhere: the system denied access to node ", node,
                      cores.empty() ? "" : ", cores ", cores, ": ",
                      std::strerror(workers.error_number)});
  }
  return {};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
