// SPDX-License-Identifier: BSL-1.0
// Measures the cost of packed documents and windows of tokens on a single core, from the page
// cache.
//
//   build/bench/bench/penstock_text_bench
//
// pack        packs 100,000 documents of a long-tailed distribution; items are documents
// read/packed rows of 2048 tokens, in order, eight at a time; bytes are those of the tokens
// read/written their floor: the same tokens copied by memcpy, and the labels, positions and borders
//             written by memset
// read/windows the same with token_windows

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
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
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/text/megatron_documents.hpp>
#include <penstock_ext/text/packed_documents.hpp>
#include <penstock_ext/text/token_windows.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t row_length = 2048;
constexpr std::size_t some = 8;  // rows per batch

// A dataset in Megatron's indexed format. The destructor removes its files.
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

// Returns the concatenated document pieces of all rows.
std::vector<ps::detail::packed_piece> pieces_of(const ps::megatron_documents& source,
                                                const ps::packing_options& options) {
  std::vector<ps::detail::packed_piece> pieces;
  ps::detail::window_packer packer{source, options};
  for (std::uint64_t i = 0; i < packer.windows(source.size(), options.window); ++i) {
    const ps::detail::packed_window window = packer.pack(i);
    for (std::uint64_t row = 0; row < window.rows(); ++row) {
      window.for_each_piece(row, [&](const auto& piece) { pieces.push_back(piece); });
    }
  }
  return pieces;
}

void write_rows(benchmark::State& state, const ps::megatron_documents& source,
                const std::vector<ps::detail::packed_piece>& pieces, std::size_t batch_bytes) {
  constexpr std::size_t tokens_bytes = some * row_length * sizeof(std::uint16_t);
  std::vector<std::byte> memory(batch_bytes);
  ps::blob_buffer buffer;
  std::size_t next = 0;
  std::size_t tokens = 0;
  for (auto _ : state) {
    std::size_t at = 0;
    while (true) {
      if (next == pieces.size()) next = 0;
      const ps::detail::packed_piece& piece = pieces[next];
      const std::size_t bytes = piece.tokens * sizeof(std::uint16_t);
      if (at + bytes > tokens_bytes) break;
      const auto document = source.bytes(piece.document, buffer);
      std::memcpy(memory.data() + at, document.data() + piece.begin * sizeof(std::uint16_t), bytes);
      at += bytes;
      tokens += piece.tokens;
      ++next;
    }
    std::memset(memory.data() + tokens_bytes, 1, batch_bytes - tokens_bytes);
    benchmark::DoNotOptimize(memory.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(tokens));
  state.SetBytesProcessed(static_cast<std::int64_t>(tokens * sizeof(std::uint16_t)));
}

}  // namespace

int main(int argc, char** argv) {
  const documents made{100'000};
  const ps::megatron_documents source{made.prefix()};
  const auto rows = ps::pack_documents(source, {.length = row_length});
  const ps::token_windows windows{made.prefix() + ".bin", {.length = row_length}};
  const auto pieces = pieces_of(source, ps::detail::resolved_packing({.length = row_length}));
  using rows_type = std::remove_cvref_t<decltype(rows)>;
  benchmark::RegisterBenchmark("pack", [&](benchmark::State& state) { pack(state, source); });
  benchmark::RegisterBenchmark("read/packed",
                               [&](benchmark::State& state) { read_rows<rows_type>(state, rows); });
  const std::size_t batch_bytes =
      ps::batch_layout<rows_type::record_type>{ps::extents_of(rows), some}.bytes();
  benchmark::RegisterBenchmark("read/written", [&](benchmark::State& state) {
    write_rows(state, source, pieces, batch_bytes);
  });
  benchmark::RegisterBenchmark("read/windows", [&](benchmark::State& state) {
    read_rows<ps::token_windows<>>(state, windows);
  });
  return bench::run(argc, argv, "text_bench",
                    {{"read/packed", "read/written"}, {"read/packed", "read/windows"}});
}
