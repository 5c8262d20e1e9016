// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <penstock_ext/store/byte_store.hpp>

#include "support/some_bytes.hpp"
#include "support/temp_dir.hpp"

namespace test {

/// A folder of files, with a sibling that no name may lead to.
class stored_files {
 public:
  stored_files() {
    std::filesystem::create_directories(path());
    write_at(outside("secret"), "secret");
  }

  [[nodiscard]] std::string path() const { return dir_.path("root"); }
  [[nodiscard]] std::string path(const std::string& name) const { return path() + '/' + name; }
  [[nodiscard]] std::string outside(const std::string& name) const { return dir_.path(name); }

  void add(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories(std::filesystem::path{path(name)}.parent_path());
    write_at(path(name), content);
  }
  void link(const std::string& target, const std::string& name) const {
    std::filesystem::create_directories(std::filesystem::path{path(name)}.parent_path());
    std::filesystem::create_symlink(target, path(name));
  }

  static void write_at(const std::string& path, std::string_view content) {
    std::ofstream file{path, std::ios::binary};
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }

 private:
  temp_dir dir_;
};

/// Memory for a range, as text.
inline std::span<std::byte> bytes_of(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

/// A part of an object, by `read`.
template <class Store>
std::string part_of(const Store& store, std::string_view object, std::uint64_t offset,
                    std::size_t count) {
  std::string text(count, '?');
  store.read({object, offset, bytes_of(text)});
  return text;
}

/// Ranges and the memory that they are read to.
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
  /// Whether all have what `objects.content(object)` has there.
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
