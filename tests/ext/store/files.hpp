// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock_ext/store/byte_store.hpp>

#include "support/folder.hpp"
#include "support/some_bytes.hpp"

namespace test {

/// A folder of files, next to a folder that no object name may reach.
struct stored_files : folder {
  stored_files() {
    make("");
    write(beside("secret"), "secret");
  }
};

/// Returns the bytes of a string as the destination of a range.
inline std::span<std::byte> bytes_of(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

/// Returns a part of an object, read through `read`.
template <class Store>
std::string part_of(const Store& store, std::string_view object, std::uint64_t offset,
                    std::size_t count) {
  std::string text(count, '?');
  store.read({object, offset, bytes_of(text)});
  return text;
}

/// Ranges together with their destination memory.
class wanted_ranges {
 public:
  void add(std::string object, std::uint64_t offset, std::size_t count) {
    parts_.push_back({std::move(object), offset, std::string(count, '?')});
  }
  [[nodiscard]] std::vector<penstock::byte_range> ranges() {
    std::vector<penstock::byte_range> all;
    for (part& one : parts_) all.push_back({one.object, one.offset, bytes_of(one.text)});
    return all;
  }
  [[nodiscard]] std::size_t size() const { return parts_.size(); }
  [[nodiscard]] const std::string& text(std::size_t i) const { return parts_[i].text; }
  /// Returns true if every range equals the same range of `objects.content(object)`.
  template <class Objects>
  [[nodiscard]] bool are_right(const Objects& objects) const {
    for (const part& one : parts_) {
      const std::string& all = objects.content(one.object);
      if (one.text != all.substr(static_cast<std::size_t>(one.offset), one.text.size())) {
        return false;
      }
    }
    return true;
  }

 private:
  struct part {
    std::string object;
    std::uint64_t offset;
    std::string text;
  };
  std::vector<part> parts_;
};

}  // namespace test
