// SPDX-License-Identifier: BSL-1.0
// Reads a folder of images in a custom format from slow storage. Some of the files are damaged. The
// program provides only the decoder. A second run uses the list of bad files from the first run.
//
// penstock_15_own_format [FOLDER [MILLISECONDS]] reads FOLDER/class/file, with an additional delay
// per read
//
// Without a folder, the program creates a folder of PGM and PPM files in two brightnesses. Every
// 40th file is cut in half.
#include "images/made_pnm_folder.hpp"
#include "images/pnm_decoder.hpp"

#include <penstock/observe/stats.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/blob/image_folder.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/quarantine/quarantine.hpp>
#include <penstock_ext/report/diagnose.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <thread>

namespace ps = penstock;

// ---- slow storage: wraps a blob source and delays each read

struct slow_folder {
  const ps::image_folder* files;
  std::chrono::milliseconds wait;

  std::uint64_t size() const { return files->size(); }
  std::span<const std::byte> bytes(std::uint64_t index, ps::blob_buffer& buffer) const {
    if (wait.count() > 0) std::this_thread::sleep_for(wait);
    return files->bytes(index, buffer);
  }
  std::int64_t label(std::uint64_t index) const { return files->label(index); }
  std::string key(std::uint64_t index) const { return files->key(index); }
};

// ---- a run over all files, to find the lighter class

struct seen {
  double light[2] = {};
  std::uint64_t count[2] = {};
  std::uint64_t reads_failed = 0;
  std::string bad;  // the quarantine list
};

seen read_all(const slow_folder& files, const ps::error_policy& on_error) {
  ps::loader loader{files | ps::decode_images<images::pnm_decoder>(ps::center_crop{24}),
                    ps::shuffled{.seed = 1},
                    {.batch_size = 32, .workers = ps::automatic, .faults = {.on_error = on_error}}};
  ps::transfer feed{loader};
  seen result;
  for (auto& batch : feed.epoch(0)) {
    const auto image = ps::get<"image">(batch);
    const auto label = ps::get<"label">(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const auto tone = static_cast<std::size_t>(label(i)) % 2;
      result.light[tone] += image(i, 12, 12, 1);
      ++result.count[tone];
    }
  }
  const auto failures = loader.failures();
  result.reads_failed = failures.failed_reads;
  std::ostringstream list;
  failures.write_quarantine(list);
  result.bad = list.str();
  std::cout << result.count[0] + result.count[1] << " samples, " << result.reads_failed
            << " reads failed\n";
  if (files.wait.count() > 0)
    std::cout << ps::diagnose(ps::transfer_stats{}, feed.stats()).str() << '\n';
  return result;
}

int main(int argc, char** argv) try {
  std::optional<images::made_pnm_folder> made;
  if (argc < 2) made.emplace(200);
  const ps::image_folder folder{made ? made->path() : argv[1]};
  const slow_folder files{&folder, std::chrono::milliseconds{argc > 2 ? std::atoi(argv[2]) : 0}};

  const seen first = read_all(files, {.action = ps::error_action::skip});
  std::cout << first.bad;
  std::istringstream list{first.bad};
  const seen second = read_all(
      files, {.action = ps::error_action::skip, .quarantine_list = ps::read_quarantine(list)});

  const bool is_same = first.count[0] == second.count[0] && first.light[0] == second.light[0] &&
                       first.light[1] == second.light[1] && second.reads_failed == 0;
  const bool is_right =
      !made || (first.count[0] == 100 && first.count[1] == 95 && first.reads_failed == 5 &&
                first.light[0] / 100 + 50 < first.light[1] / 95);
  return is_same && is_right ? 0 : 1;
} catch (const std::exception& problem) {
  std::cerr << "15_own_format: " << problem.what() << '\n';
  return 1;
}
