// SPDX-License-Identifier: BSL-1.0
// penstock's side of formats.py. formats.py and ../peer.hpp describe the measurement.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/audio/audio_clips.hpp>
#include <penstock_ext/files/glob.hpp>
#include <penstock_ext/indexed/hdf5/hdf5_dataset.hpp>
#include <penstock_ext/indexed/json/json_lines.hpp>
#include <penstock_ext/indexed/tf_examples.hpp>

#include "../penstock_peer.hpp"

namespace {

namespace ps = penstock;

using example = ps::record<ps::field<"image", std::uint8_t, 784>, ps::field<"scores", float, 32>,
                           ps::field<"ids", std::int64_t, 16>, ps::field<"label", std::int64_t>>;
using line = ps::record<ps::field<"text", std::uint8_t, ps::ragged>, ps::field<"box", float, 4>,
                        ps::field<"ids", std::int64_t, 32>, ps::field<"label", std::int64_t>>;
using image = ps::record<ps::field<"x", std::uint8_t, 28, 28>>;
constexpr ps::sequential sequential{};
constexpr ps::shuffled shuffled{.seed = 1};

// Adds all values of the fields. The sums of floats are exact, because the values are whole.
template <class... Values>
void add(compare::seen& sums, std::span<Values>... fields) {
  const auto add_field = [&]<class T>(std::span<T> values) {
    if constexpr (std::is_same_v<std::remove_const_t<T>, float>) {
      sums.values += compare::sum_of(values);
    } else {
      sums.labels += std::accumulate(values.begin(), values.end(), std::int64_t{0});
    }
  };
  (add_field(fields), ...);
}

const auto add_example = [](const auto& batch, compare::seen& sums) {
  add(sums, ps::get<"image">(batch).flat(), ps::get<"scores">(batch).flat(),
      ps::get<"ids">(batch).flat(), ps::get<"label">(batch).flat());
};
const auto add_lines = [](const auto& batch, compare::seen& sums) {
  add(sums, ps::get<"text">(batch).values().flat(), ps::get<"box">(batch).flat(),
      ps::get<"ids">(batch).flat(), ps::get<"label">(batch).flat());
};
const auto add_clips = [](const auto& batch, compare::seen& sums) {
  sums.values += 32768 * compare::sum_of(ps::get<"values">(batch).flat());
};
const auto add_images = [](const auto& batch, compare::seen& sums) {
  add(sums, ps::get<"x">(batch).flat());
};

const auto open_examples = [](const std::string& folder) {
  return ps::tf_examples<example>{{folder + "/samples.tfrecord"}};
};
const auto open_lines = [](const std::string& folder) {
  return ps::json_lines<line>{{folder + "/samples.jsonl"}};
};
const auto open_new_lines = [](const std::string& folder) {
  std::filesystem::remove(folder + "/samples.jsonl.index");
  return open_lines(folder);
};
const auto open_clips = [](const std::string& folder) {
  return ps::audio_clips<float>{ps::glob(folder + "/wav/*.wav"), {.frames = 16000}};
};
const auto open_images = [](const std::string& folder) {
  return ps::hdf5_dataset<image>{folder + "/samples.h5"};
};
const auto open_uncached_images = [](const std::string& folder) {
  return ps::hdf5_dataset<image>{folder + "/samples.h5", {.cache_bytes = 1 << 20}};
};

enum class opened { once, each_epoch };

template <class Open, class Order, class Add>
compare::row row(const std::string& name, Open open, Order order, Add add_batch,
                 opened when = opened::once) {
  const auto measure = [=](const std::string& folder) {
    const auto make = [&] {
      return ps::loader{open(folder), order, {.batch_size = 64, .workers = 0}};
    };
    const auto run = [&](auto& loader, std::uint64_t epoch, auto each) {
      for (auto& batch : loader.epoch(epoch)) {
        each([&](compare::seen& sums) {
          add_batch(batch, sums);
          sums.samples += batch.size();
        });
      }
    };
    if (when == opened::once) return compare::load(make, run);
    const auto make_and_run = [&](int, std::uint64_t epoch, auto each) {
      auto loader = make();
      run(loader, epoch, each);
    };
    return compare::load([] { return 0; }, make_and_run);
  };
  return {name, measure};
}

}  // namespace

int main(int argc, char** argv) {
  constexpr opened anew = opened::each_epoch;  // a large cache would keep all decoded chunks
  const std::vector<compare::row> rows{
      row("tfrecord/penstock/sequential", open_examples, sequential, add_example),
      row("tfrecord/penstock/shuffled", open_examples, shuffled, add_example),
      row("jsonl/penstock/first_use", open_new_lines, sequential, add_lines, anew),
      row("jsonl/penstock/sequential", open_lines, sequential, add_lines),
      row("jsonl/penstock/shuffled", open_lines, shuffled, add_lines),
      row("wav/penstock/shuffled", open_clips, shuffled, add_clips),
      row("hdf5/penstock/sequential", open_images, sequential, add_images, anew),
      row("hdf5/penstock/sequential/opened:once", open_uncached_images, sequential, add_images),
      row("hdf5/penstock/shuffled", open_images, shuffled, add_images, anew),
  };
  return compare::main_of(argc, argv, rows);
}
