// SPDX-License-Identifier: BSL-1.0
// What packed documents and windows of tokens cost on one core, from the page cache.
//
//   build/bench/bench/penstock_text_bench
//
// pack        packs 100,000 documents of a long-tailed distribution; items are documents
// read/packed rows of 2048 tokens, in order, eight at a time; bytes are those of the tokens
// read/windows the same by token_windows

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <penstock/core/layout.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/order/random.hpp>
#include <penstock/text/megatron_documents.hpp>
#include <penstock/text/packed_documents.hpp>
#include <penstock/text/token_windows.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t row_length = 2048;

// An indexed data set of Megatron's, removed at the end.
class documents {
 public:
  explicit documents(std::size_t count) {
    std::string name = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
    folder_ = ::mkdtemp(name.data()) == nullptr ? throw std::runtime_error("mkdtemp") : name;
    std::ofstream index{prefix() + ".idx", std::ios::binary};
    std::ofstream tokens{prefix() + ".bin", std::ios::binary};
    ps::sample_generator draw{{.seed = 1}, 0};
    std::vector<std::uint32_t> lengths;
    for (std::size_t i = 0; i < count; ++i) {
      lengths.push_back(1 + static_cast<std::uint32_t>(400 * std::exp(ps::normal(draw, 0.0, 1.2))));
    }
    index.write("MMIDIDX\0\0", 9);
    put<std::uint64_t>(index, 1);
    put<std::uint8_t>(index, 8);
    put<std::uint64_t>(index, count);
    put<std::uint64_t>(index, count + 1);
    for (const std::uint32_t length : lengths) put(index, length);
    std::uint64_t begin = 0;
    for (const std::uint32_t length : lengths) {
      put(index, begin);
      begin += 2 * std::uint64_t{length};
    }
    for (std::uint64_t i = 0; i <= count; ++i) put(index, i);
    for (std::uint64_t i = 0; i < begin / 2; ++i) put(tokens, static_cast<std::uint16_t>(i * 31));
    if (!index.flush() || !tokens.flush()) throw std::runtime_error(prefix());
  }
  documents(const documents&) = delete;
  documents& operator=(const documents&) = delete;
  ~documents() { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string prefix() const { return folder_ + "/text"; }

 private:
  template <class T>
  static void put(std::ofstream& file, T number) {
    file.write(reinterpret_cast<const char*>(&number), sizeof number);
  }

  std::string folder_;
};

void pack(benchmark::State& state, const ps::megatron_documents& of) {
  for (auto _ : state) {
    const auto rows = ps::pack_documents(of, {.length = row_length});
    benchmark::DoNotOptimize(rows.size());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(of.size()));
}

template <class Dataset>
void read_rows(benchmark::State& state, const Dataset& rows) {
  constexpr std::size_t some = 8;
  const ps::batch_layout<typename Dataset::record_type> layout{ps::extents_of(rows), some};
  std::vector<std::byte> memory(layout.bytes() + 256);
  void* first = memory.data();
  std::size_t room = memory.size();
  auto* const aligned = static_cast<std::byte*>(std::align(256, layout.bytes(), first, room));
  ps::reader<Dataset> read{rows};
  std::vector<std::uint64_t> indices(some);
  std::uint64_t next = 0;
  for (auto _ : state) {
    if (next + some > rows.size()) next = 0;
    for (std::uint64_t& index : indices) index = next++;
    read.read(indices, {aligned, layout, 0, some}, {});
    benchmark::DoNotOptimize(aligned);
  }
  const auto tokens = state.iterations() * static_cast<std::int64_t>(some * row_length);
  state.SetItemsProcessed(tokens);
  state.SetBytesProcessed(tokens * static_cast<std::int64_t>(sizeof(std::uint16_t)));
}

}  // namespace

int main(int argc, char** argv) {
  const documents made{100'000};
  const ps::megatron_documents source{made.prefix()};
  const auto rows = ps::pack_documents(source, {.length = row_length});
  const ps::token_windows windows{made.prefix() + ".bin", {.length = row_length}};
  using rows_type = std::remove_cvref_t<decltype(rows)>;
  benchmark::RegisterBenchmark("pack", [&](benchmark::State& state) { pack(state, source); });
  benchmark::RegisterBenchmark("read/packed",
                               [&](benchmark::State& state) { read_rows<rows_type>(state, rows); });
  benchmark::RegisterBenchmark("read/windows", [&](benchmark::State& state) {
    read_rows<ps::token_windows<>>(state, windows);
  });
  return bench::run(argc, argv, "text_bench", {{"read/packed", "read/windows"}});
}
