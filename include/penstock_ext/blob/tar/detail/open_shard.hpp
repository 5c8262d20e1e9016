// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/blob/detail/descriptor.hpp>
#include <penstock_ext/blob/support/shard_file.hpp>
#include <penstock_ext/blob/tar/detail/archive_window.hpp>
#include <penstock_ext/blob/tar/detail/shard_index.hpp>
#include <penstock_ext/blob/tar/detail/shard_listing.hpp>
#include <penstock_ext/blob/tar/detail/tar_walk.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/file_bytes.hpp>
#include <penstock_ext/files/support/whole_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Lists the samples of an archive by all its headers; the text of its index goes to `index` unless
/// that is null. Throws what `tar_walk` and `shard_listing` throw.
template <archive_bytes Source>
void list_by_headers(const Source& archive, shard_listing& into, shard_index_text* index) {
  tar_walk walk{archive};
  while (walk.next()) {
    const tar_member& member = walk.member();
    if (member.is_link) into.pass_link(member.name);
    if (!member.is_file) continue;
    const shard_component file{member.name, member.begin, member.size, member.is_usual};
    const auto listed = into.add(file);
    if (listed && index != nullptr) index->add(file, *listed);
  }
  into.finish();
}

/// Lists the samples of an archive by the text of its index. Returns what is wrong with that, ""
/// if nothing is; then the archive has these files, as far as the headers say that were looked at:
/// those before the first file, about sixty of those between, the last one, and all after it.
/// Throws what `tar_walk` and `shard_listing` throw.
template <archive_bytes Source>
[[nodiscard]] std::string list_by_index(const Source& archive, std::string_view text,
                                        shard_listing& into) {
  const std::uint64_t step = archive.size() / 60 + 1;
  std::uint64_t next_look = 0;
  std::uint64_t last_end = 0;
  shard_component last;
  const auto foreign = [&](const shard_component& file) {
    std::array<std::byte, tar_block> block{};
    if (archive.read_at(file.begin - tar_block, block) < tar_block) return std::string{"nothing"};
    return foreign_header(block, file.name, file.size);
  };
  const auto say = [](const shard_component& file, const std::string& found) {
    return "before '" + std::string{file.name} + "' the archive has " + found +
           ": the index is of another archive, or was made by a wds2idx that takes extended "
           "headers "
           "for files' bytes";
  };
  shard_index_words words{text, archive.size()};
  while (words.next()) {
    const shard_component& file = words.file();
    if (last_end == 0) {
      tar_walk walk{archive};
      bool is_there = false;
      while (!is_there && walk.next()) {
        is_there = walk.member().is_file && !split_component(walk.member().name).is_hidden();
      }
      if (!is_there || walk.member().begin != file.begin) return say(file, "another first file");
    }
    if (file.begin >= next_look) {
      if (const auto found = foreign(file); !found.empty()) return say(file, found);
      next_look = file.begin + step;
    }
    if (into.add(file) != words.is_first()) return "its lines are no samples";
    last = file;
    last_end = words.end();
  }
  if (!words.problem().empty()) return words.problem();
  if (last_end == 0) return "it names no file";
  if (const auto found = foreign(last); !found.empty()) return say(last, found);
  tar_walk rest{archive, last_end};
  while (rest.next()) {
    if (rest.member().is_file && !split_component(rest.member().name).is_hidden()) {
      return "the archive has more files: the index is of an older one";
    }
  }
  into.finish();
  return {};
}

/// A shard that is open, and what is in it.
struct open_shard {
  shard_file file;
  std::vector<shard_sample> samples = {};
  std::string keys = {};
  std::uint64_t left_out = 0;
  bool is_from_index = false;
  std::string problem = {};  ///< why an index was not used or not written; "" if none was wanted

  /// Opens and lists the shard `path`. `index` is the path of its index, "" for none, which is read
  /// if it is there, and, with `keep`, else written. Throws `file_unreadable`, what `tar_walk` and
  /// `shard_listing` throw, and `file_changed` where the archive was written to meanwhile.
  [[nodiscard]] static open_shard list(std::string path, const shard_wishes& wishes,
                                       const std::string& index, bool keep) {
    open_shard shard{shard_file{std::move(path)}};
    if (!index.empty()) shard.read_index(index, wishes);
    if (!shard.is_from_index) {
      shard_listing listing{shard.file.path(), wishes};
      shard_index_text text;
      list_by_headers(shard.file, listing, keep ? &text : nullptr);
      shard.take(listing);
      shard.file.require_unchanged();  // before what was listed is kept
      if (keep) shard.write_index(index, text, listing.lines());
    }
    return shard;
  }

 private:
  void take(shard_listing& listing) {
    samples = std::move(listing.samples());
    samples.shrink_to_fit();
    keys = std::move(listing.keys());
    keys.shrink_to_fit();
    left_out = listing.left_out();
  }

  void add_problem(const std::string& index, const std::string& what) {
    problem += (problem.empty() ? "" : "; ") + index + ": " + what;
  }

  void read_index(const std::string& index, const shard_wishes& wishes) {
    struct ::stat status {};
    if (::stat(index.c_str(), &status) != 0) return;
    std::string wrong;
    try {
      constexpr std::uint64_t most = std::uint64_t{1} << 32;
      if (!S_ISREG(status.st_mode)) {
        wrong = "it is no regular file";
      } else if (file_stamp_of(status).is_older_than(file.stamp())) {
        wrong = "it is older than the archive: if it is right all the same, touch it";
      } else {
        const std::vector<std::byte> bytes = read_file(index, most);
        shard_listing listing{file.path(), wishes};
        wrong = list_by_index(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                              listing);
        if (wrong.empty()) file.require_unchanged();
        if (wrong.empty()) take(listing);
      }
    } catch (const file_error& error) {
      wrong = error.what();  // the archive will say so itself, if it is at fault
    }
    is_from_index = wrong.empty();
    if (!is_from_index) add_problem(index, "not used: " + wrong);
  }

  /// Whether nothing is lost there: no file, an empty one, or an index.
  [[nodiscard]] static bool may_write(const std::string& index) {
    struct ::stat status {};
    if (::stat(index.c_str(), &status) != 0) return errno == ENOENT;
    if (!S_ISREG(status.st_mode)) return false;
    if (status.st_size == 0) return true;
    std::array<char, 3> begin{};
    std::ifstream file{index, std::ios::binary};
    file.read(begin.data(), begin.size());
    return file && std::string_view{begin.data(), begin.size()} == "v1.";
  }

  void write_index(const std::string& index, const shard_index_text& text, std::uint64_t lines) {
    if (!text.problem().empty()) {
      add_problem(index, "not written: " + std::string{text.problem()});
      return;
    }
    if (!may_write(index)) {
      add_problem(index,
                  "not written: there is a file that is no index of tar shards: choose another "
                  "index_folder");
      return;
    }
    errno = write_whole_file(index, text.text(lines));
    if (errno != 0) {
      add_problem(index, "not written: " + system_reason());
      return;
    }
    // The time of the archive as it was listed, so that a later change makes the index older.
    const file_stamp& stamp = file.stamp();
    const ::timespec time{stamp.seconds, stamp.nanoseconds};
    const ::timespec times[] = {time, time};
    static_cast<void>(::utimensat(AT_FDCWD, index.c_str(), times, 0));
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
