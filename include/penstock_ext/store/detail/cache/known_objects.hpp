// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <penstock_ext/store/byte_store.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// An object of the store below a cache.
struct known_object {
  std::string name;
  std::uint64_t number;  ///< from 0, in the order in which they were asked for
  std::uint64_t size;    ///< in bytes
  std::string version;   ///< as its store has it; "" where that has none
  std::string store;     ///< the store's name and the version, of which its blocks are
};

/// The objects that were asked for so far, which stay where they are. From any thread.
class known_objects {
 public:
  /// Of the store that the cache was told to be `store_name`.
  explicit known_objects(std::string store_name) : store_name_(std::move(store_name)) {}

  /// The object `name`; it is as `state_of(name)` says, asked when it is new, under no lock.
  template <class StateOf>
  [[nodiscard]] const known_object& find(std::string_view name, const StateOf& state_of) {
    {
      const std::lock_guard lock{mutex_};
      const auto found = objects_.find(name);
      if (found != objects_.end()) return found->second;
    }
    object_state state = state_of(name);
    std::string store = store_name_;
    if (!state.version.empty()) store.append(1, '\0').append(state.version);
    const std::lock_guard lock{mutex_};
    // Where another thread was faster, its answer stays.
    known_object made{std::string{name}, objects_.size(), state.size, std::move(state.version),
                      std::move(store)};
    return objects_.try_emplace(std::string{name}, std::move(made)).first->second;
  }

  /// The object `name` if it was asked for, or null.
  [[nodiscard]] const known_object* find_known(std::string_view name) {
    const std::lock_guard lock{mutex_};
    const auto found = objects_.find(name);
    return found == objects_.end() ? nullptr : &found->second;
  }

 private:
  struct name_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const noexcept {
      return std::hash<std::string_view>{}(name);
    }
  };

  const std::string store_name_;
  std::mutex mutex_;
  std::unordered_map<std::string, known_object, name_hash, std::equal_to<>> objects_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
