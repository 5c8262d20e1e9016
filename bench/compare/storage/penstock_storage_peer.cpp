// SPDX-License-Identifier: BSL-1.0
// Runs one row of storage.py with penstock. A sleep simulates the accelerator.
//
//   penstock_storage_peer KIND BATCH STEP_SECONDS WARM_EPOCHS EPOCHS WORKERS FILE...
//
// KIND: files (their raw bytes), direct_files (bypassing the page cache), images (decoded, 800 x
// 800), blobs (the column "image" of Parquet files), columns (40 columns, c0 to c39),
// direct_columns (bypassing the page cache), typed_columns (40 columns of dlrm_types), or loop and
// direct_loop: threads that read files without penstock. A STEP of 0 measures the maximum rate of
// the loader. Prints a JSON object for storage.py. The first WARM_EPOCHS epochs are not measured;
// if there are none, the first step is not measured.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/report/diagnose.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>
#include <penstock_ext/store/local_store.hpp>

#ifdef PENSTOCK_STORAGE_JPEG
#include <penstock_ext/blob/blob_list.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>
#endif
#ifdef PENSTOCK_STORAGE_PARQUET
#include <penstock_ext/table/parquet/parquet_blobs.hpp>
#include <penstock_ext/table/parquet/parquet_dataset.hpp>
#endif

#include "../peer.hpp"

namespace {

namespace ps = penstock;

using compare::cpu_seconds;
using compare::now;

using bytes_of_sample = ps::record<ps::field<"bytes", std::uint8_t, ps::ragged>>;
// A sample fills whole pages, so that reads that bypass the page cache write directly to their
// destination. Bytes after `size` are 0.
using pages_of_sample =
    ps::record<ps::field<"size", std::uint64_t>, ps::field<"bytes", std::uint8_t, ps::ragged>>;

struct wanted {
  std::string kind;
  std::size_t batch;
  std::chrono::duration<double> step;
  std::uint64_t warm_epochs;
  std::uint64_t epochs;
  std::size_t workers;
  std::vector<std::string> files;
  std::size_t prefetch = 2;
  std::size_t chunk = 0;
};

// Rounds `bytes` up to whole pages.
constexpr std::uint64_t in_pages(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    all += c;
  }
  return all + '"';
}

void print(double busy, std::size_t samples, double seconds, double cpu, const std::string& said) {
  std::printf(
      R"({"utilisation": %.6f, "samples": %zu, "seconds": %.6f, "cpu_seconds": %.6f, "verdict": %s})"
      "\n",
      busy / seconds, samples, seconds, cpu, quoted(said).c_str());
}

// A dataset in which each sample is a file. Each read of a sample reads the file into the batch.
class whole_files {
 public:
  using record_type = pages_of_sample;

  whole_files(const std::vector<std::string>& paths, bool direct)
      : store_(std::make_shared<ps::local_store>(folder_of(paths[0]),
                                                 ps::local_store_options{.direct = direct})) {
    for (const std::string& path : paths) {
      names_.push_back(std::filesystem::path{path}.filename());
      sizes_.push_back(store_->size_of(names_.back()));
    }
  }

  [[nodiscard]] std::uint64_t size() const { return names_.size(); }
  [[nodiscard]] ps::record_extents<record_type> extents() const {
    return {{}, {.longest = in_pages(*std::max_element(sizes_.begin(), sizes_.end()))}};
  }
  [[nodiscard]] std::uint64_t length(std::uint64_t index) const { return in_pages(sizes_[index]); }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    const auto pages = std::as_writable_bytes(std::span{ps::get<"bytes">(out).flat()});
    const std::uint64_t size = ps::get<"size">(out) = sizes_[index];
    const ps::byte_range file{names_[index], 0, pages.first(size)};
    store_->read_many({&file, 1});
    std::ranges::fill(pages.subspan(size), std::byte{0});
  }

 private:
  static std::string folder_of(const std::string& path) {
    return std::filesystem::absolute(path).parent_path();
  }

  std::shared_ptr<const ps::local_store> store_;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> sizes_;
};

template <class Data, class Order>
void run(Data data, const Order& order, const wanted& requested) {
  const std::uint64_t batches = data.size() / requested.batch;  // number of batches per epoch
  ps::loader_options how{.batch_size = requested.batch,
                         .workers = requested.workers,
                         .prefetch = requested.prefetch,
                         .last_batch = ps::last_batch::drop};
  how.memory.budget = ps::memory_budget::share(0.8);
  how.tuning.chunk = requested.chunk;
  ps::loader loader{std::move(data), order, how};
  const std::uint64_t warm_batches = (std::max)(batches * requested.warm_epochs, std::uint64_t{1});
  std::uint64_t number = 0;
  std::size_t samples = 0;
  double busy = 0;
  double begin = 0;
  double cpu = 0;
  std::optional<ps::loader_stats> before;
  for (auto& batch : loader.epochs(0, requested.warm_epochs + requested.epochs)) {
    if (requested.step.count() > 0) std::this_thread::sleep_for(requested.step);
    if (++number < warm_batches) continue;
    if (number == warm_batches) {
      before = loader.stats();
      cpu = cpu_seconds();
      begin = now();
      continue;
    }
    busy += requested.step.count();  // counts the planned time, because oversleeping does not
                                     // count as work
    samples += batch.size();
  }
  const double seconds = now() - begin;
  print(busy, samples, seconds, cpu_seconds() - cpu,
        ps::diagnose(before.value(), loader.stats()).sentence);
}

// The floor. Each thread claims the next file and reads it into its own memory, which is of the
// same kind as the loader's slots.
void loop(const wanted& requested, int flags) {
  const ps::cpu_device device;
  const std::size_t count = requested.files.size();
  std::uint64_t longest = 0;
  for (const std::string& path : requested.files) {
    longest = (std::max)(longest, in_pages(std::filesystem::file_size(path)));
  }
  std::vector<std::byte*> memory(requested.workers);
  for (std::byte*& one : memory) {
    // Freed at the end of the process.
    one = static_cast<std::byte*>(device.allocate_pageable(longest));
  }
  std::atomic<std::size_t> next{0};
  const double cpu = cpu_seconds();
  const double begin = now();
  std::vector<std::jthread> threads;
  for (std::byte* const one : memory) {
    threads.emplace_back([&, out = std::span{one, longest}] {
      for (std::size_t at = 0; (at = next.fetch_add(1)) < count * requested.epochs;) {
        const int file = ::open(requested.files[at % count].c_str(), O_RDONLY | O_CLOEXEC | flags);
        std::size_t filled = 0;
        for (ssize_t got = 1; got > 0; filled += static_cast<std::size_t>(got)) {
          got = (std::max)(::read(file, out.data() + filled, out.size() - filled), ssize_t{0});
        }
        ::close(file);
        if (filled == 0) std::terminate();
      }
    });
  }
  threads.clear();
  print(0, count * requested.epochs, now() - begin, cpu_seconds() - cpu, "");
}

#ifdef PENSTOCK_STORAGE_PARQUET
// A dataset of the rows of a binary column, which are copied into the batch.
class blob_rows {
 public:
  using record_type = bytes_of_sample;

  explicit blob_rows(const std::vector<std::string>& paths)
      : blobs_(paths, {.columns = {.blob = "image"}}) {
    ps::blob_buffer buffer;
    length_ = blobs_.bytes(0, buffer).size();
  }

  [[nodiscard]] std::uint64_t block() const { return blobs_.block(); }
  [[nodiscard]] std::uint64_t size() const { return blobs_.size(); }
  [[nodiscard]] ps::record_extents<record_type> extents() const { return {{.longest = length_}}; }
  [[nodiscard]] std::uint64_t length(std::uint64_t) const { return length_; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    const auto bytes = std::as_writable_bytes(std::span{ps::get<"bytes">(out).flat()});
    thread_local ps::blob_buffer buffer;
    const auto found = blobs_.bytes(index, buffer);
    if (found.size() != bytes.size()) throw std::runtime_error("rows of several lengths");
    std::copy(found.begin(), found.end(), bytes.begin());
  }

 private:
  ps::parquet_blobs blobs_;
  std::size_t length_ = 0;  // length of every row
};

// Returns the column name "c0" to "c199".
constexpr ps::name column(std::size_t number) {
  std::uint64_t text = 0;  // the first character is the lowest byte
  std::size_t left = number;
  do text = text << 8U | ('0' + left % 10);
  while ((left /= 10) != 0);
  return {text << 8U | 'c', 0, 0, 0};
}
template <std::size_t... Is>
auto row_of(std::index_sequence<Is...>) -> ps::record<ps::field<column(Is), float>...>;
using row_of_40 = decltype(row_of(std::make_index_sequence<40>{}));
// DLRM_TYPES in workloads.py
using typed_row_of_40 =
    decltype([]<std::size_t... F, std::size_t... D, std::size_t... H, std::size_t... B>(
                 std::index_sequence<F...>, std::index_sequence<D...>, std::index_sequence<H...>,
                 std::index_sequence<B...>)
                 -> ps::record<ps::field<column(F), float>..., ps::field<column(D), double>...,
                               ps::field<column(H), std::uint16_t>...,
                               ps::field<column(B), std::int8_t>...> {
      return {};
    }(std::index_sequence<11, 17, 18, 25, 31, 41, 43, 49, 53, 59, 67, 71, 74, 88, 90, 91, 93, 96,
                          137, 141, 147, 155, 158, 160, 162, 189, 195>{},
                 std::index_sequence<20, 75, 94, 117, 154>{}, std::index_sequence<58, 68, 92, 97>{},
                 std::index_sequence<116, 169, 180, 186>{}));
#endif

void run(const wanted& requested) {
  const ps::shuffled shuffled{.seed = 1};
  if (requested.kind == "files" || requested.kind == "direct_files") {
    return run(whole_files{requested.files, requested.kind == "direct_files"}, shuffled, requested);
  }
  if (requested.kind == "loop") return loop(requested, 0);
  if (requested.kind == "direct_loop") return loop(requested, O_DIRECT);
#ifdef PENSTOCK_STORAGE_JPEG
  if (requested.kind == "images") {
    std::vector<ps::blob_entry> entries;
    for (const std::string& path : requested.files) entries.push_back({path});
    return run(ps::blob_list{entries} | ps::decode_images<ps::jpeg_decoder>(ps::whole{800}),
               shuffled, requested);
  }
#endif
#ifdef PENSTOCK_STORAGE_PARQUET
  const auto by_group = [](const auto& data) {
    return ps::block_shuffled{.seed = 1, .block = data.block()};
  };
  if (requested.kind == "blobs") {
    blob_rows rows{requested.files};
    const auto order = by_group(rows);
    return run(std::move(rows), order, requested);
  }
  const auto columns = [&]<class Row>(std::type_identity<Row>, bool direct) {
    // Space for two row groups per worker, because a chunk overlaps at most two row groups.
    constexpr std::size_t group_bytes = 6144 * 160;
    ps::parquet_dataset<Row> rows{
        requested.files,
        {.cache_bytes = 2 * (requested.workers + 1) * group_bytes, .direct = direct}};
    const auto order = by_group(rows);
    wanted in_groups = requested;
    in_groups.prefetch = 0;
    in_groups.chunk = rows.block();
    return run(std::move(rows), order, in_groups);
  };
  if (requested.kind == "columns") return columns(std::type_identity<row_of_40>{}, false);
  if (requested.kind == "direct_columns") return columns(std::type_identity<row_of_40>{}, true);
  if (requested.kind == "typed_columns")
    return columns(std::type_identity<typed_row_of_40>{}, false);
#endif
  throw std::runtime_error("no kind " + requested.kind + " in this build");
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 7) {
    std::fprintf(stderr, "usage: %s KIND BATCH STEP_SECONDS WARM_EPOCHS EPOCHS WORKERS FILE...\n",
                 argv[0]);
    return 2;
  }
  run({words[0],
       std::stoul(words[1]),
       std::chrono::duration<double>{std::stod(words[2])},
       std::stoul(words[3]),
       std::stoul(words[4]),
       std::stoul(words[5]),
       {words.begin() + 6, words.end()}});
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  return 1;
}
