// SPDX-License-Identifier: BSL-1.0
// Measures which fraction of a link's bandwidth is used if the first byte of each response arrives
// after 30 ms.
//
//   build/bench/bench/penstock_http_bench
//
// link/<rate>           the floor: the bytes of the blobs divided by the link's rate, in MB/s
// blobs/<rate>/<n>      an epoch of a loader with two workers over `stored_blobs` over
//                       `http_store`, with 64 MiB of `lookahead_bytes` and n `.threads`, each with
//                       16 blobs in flight
//
// Each blob is 112 KiB. The blobs are read in shuffled order from an object of 256 MiB, which takes
// two seconds to transfer at the link's rate. The server runs in this process, with a thread per
// connection. It waits 30 ms, and then until the link has capacity for the response. Unlike a
// remote server, it uses the cores of this machine.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/blob/stored_blobs.hpp>
#include <penstock_ext/store/http/http_store.hpp>

#include "ext/remote/range_server.hpp"
#include "support/program.hpp"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t blob_bytes = std::size_t{112} << 10;
constexpr std::size_t object_bytes = std::size_t{256} << 20;
constexpr milliseconds latency{30};

/// A simulated link with a rate in bytes per second that transmits one response at a time.
class far_link {
 public:
  explicit far_link(double bytes_per_second) : rate_(bytes_per_second) {}

  /// Waits until the link has transmitted `bytes` bytes.
  void carry(std::size_t bytes) {
    clock_type::time_point end;
    {
      const std::lock_guard lock{mutex_};
      const std::chrono::duration<double> takes{static_cast<double>(bytes) / rate_};
      free_ = std::max(free_, clock_type::now()) +
              std::chrono::duration_cast<clock_type::duration>(takes);
      end = free_;
    }
    std::this_thread::sleep_until(end);
  }

 private:
  double rate_;
  std::mutex mutex_;
  clock_type::time_point free_{};
};

/// A server of a single object behind a simulated link.
class far_server {
 public:
  explicit far_server(double bytes_per_second)
      : link_(bytes_per_second), server_([this](const test::http_request& request) {
          std::this_thread::sleep_for(latency);
          const auto [begin, end] = request.range(content().size());
          if (request.method != "HEAD") link_.carry(end - begin);
          return test::ranged(request, content());
        }) {}

  [[nodiscard]] std::string url() const { return server_.url(); }
  /// Returns the contents of the object.
  [[nodiscard]] static const std::string& content() {
    static const std::string bytes = test::some_bytes(object_bytes);
    return bytes;
  }

 private:
  far_link link_;
  test::range_server server_;
};

std::vector<ps::stored_blob> blobs_for(double bytes_per_second) {
  const auto count = static_cast<std::size_t>(2 * bytes_per_second / blob_bytes);
  std::vector<ps::stored_blob> list;
  std::mt19937_64 random{1};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t place = random() % (object_bytes / blob_bytes);
    list.push_back({"data", place * blob_bytes, blob_bytes});
  }
  return list;
}

void floor_of_link(benchmark::State& state, double rate) {
  const auto count = blobs_for(rate).size();
  for (auto _ : state) {
    state.SetIterationTime(static_cast<double>(count * blob_bytes) / rate);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(count));
}

/// The blobs as samples, read as `decode_images` reads them.
struct blob_samples {
  using record_type = ps::record<ps::field<"bytes", std::byte, blob_bytes>>;

  [[nodiscard]] std::uint64_t size() const { return blobs.size(); }
  void read_chunk(std::span<const std::uint64_t> indices, ps::batch_view<record_type> out) const {
    thread_local ps::blob_buffer buffer;
    blobs.prefetch(indices.subspan(1));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto bytes = blobs.bytes(indices[i], buffer);
      std::memcpy(ps::get<"bytes">(out[i]).data(), bytes.data(), bytes.size());
    }
  }
  void prefetch_hint(std::span<const std::uint64_t> indices) const { blobs.prefetch(indices); }
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const {
    return blobs.storage_size(index);
  }
  [[nodiscard]] std::uint64_t prefetch_capacity() const { return blobs.prefetch_capacity(); }

  const ps::stored_blobs<const ps::http_store&>& blobs;
};

void read_blobs(benchmark::State& state, double rate, std::size_t threads) {
  const far_server server{rate};
  const ps::http_store store{server.url()};
  const ps::stored_blobs<const ps::http_store&> blobs{
      store, blobs_for(rate), {.read_ahead = std::uint64_t{64} << 20, .threads = threads}};
  ps::loader loader{blob_samples{blobs},
                    ps::shuffled{.seed = 1},
                    {.batch_size = 16, .workers = 2, .lookahead_bytes = std::uint64_t{64} << 20}};
  std::uint64_t epoch = 0;
  for (auto _ : state) {
    const auto start = clock_type::now();
    for (auto& batch : loader.epoch(epoch++)) benchmark::DoNotOptimize(batch.size());
    state.SetIterationTime(std::chrono::duration<double>(clock_type::now() - start).count());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(blobs.size()));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<bench::goal> goals;
  for (const int megabytes : {25, 50, 100, 200}) {
    const double rate = 1e6 * megabytes;
    const std::string at = '/' + std::to_string(megabytes);
    bench::add_once("link" + at, floor_of_link, rate);
    for (const std::size_t threads : {std::size_t{2}, ps::stored_blobs_options{}.threads}) {
      const std::string name = "blobs" + at + '/' + std::to_string(threads);
      bench::add_once(name, read_blobs, rate, threads);
      goals.push_back({name, "link" + at, bench::goal::kind::speed_at_least, 0.95});
    }
  }
  return bench::run(argc, argv, "http_bench", goals, 3);  // each repetition takes two seconds
}
