// SPDX-License-Identifier: BSL-1.0
// Prints the positions of `mixture` for the schedules on stdin, for mixture_model.py to compare. A
// line consists of: seed mode batch_size epoch_steps, parts and their sizes, entries (epoch, step,
// weights), a flag to add the last entry with `continued`, epochs to print, and positions to query
// (epoch, step).
#include <penstock_ext/samplers/mixture.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/order/random.hpp>

namespace ps = penstock;

namespace {

std::uint64_t next(std::istream& in) {
  std::uint64_t value = 0;
  if (!(in >> value)) throw std::runtime_error("mixture_positions: a line is too short");
  return value;
}

// Fills pieces of random lengths, starting with the last piece.
std::vector<std::uint64_t> pieces_of(const ps::mixture& mixed, std::uint64_t n,
                                     std::uint64_t epoch) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(mixed.size(n)));
  const auto order = mixed.order(n, epoch);
  ps::sample_generator gen{{.seed = 9, .epoch = epoch}, n};
  for (std::size_t end = all.size(); end != 0;) {
    const std::size_t count = ps::uniform(gen, std::size_t{1}, end);
    end -= count;
    order.fill(end, std::span{all}.subspan(end, count));
  }
  return all;
}

void answer(std::istream& in) {
  ps::mixture_options options;
  options.seed = next(in);
  options.on_exhausted = static_cast<ps::exhausted_part_policy>(next(in));
  options.batch_size = static_cast<std::size_t>(next(in));
  options.epoch_steps = next(in);
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(next(in)));
  std::uint64_t n = 0;
  for (std::uint64_t& size : sizes) n += size = next(in);
  options.schedule.resize(static_cast<std::size_t>(next(in)));
  for (auto& [from, weights] : options.schedule) {
    from.epoch = next(in);
    from.step = next(in);
    weights.resize(sizes.size());
    for (std::uint32_t& weight : weights) weight = static_cast<std::uint32_t>(next(in));
  }
  const bool is_continued = next(in) != 0;
  const ps::mixture_weights last = options.schedule.back();
  if (is_continued) options.schedule.pop_back();
  ps::mixture mixed = ps::mixture::of_sizes(options, sizes);
  if (is_continued) mixed = mixed.continued(last.from, last.weights);

  std::ostringstream out;
  const std::uint64_t epochs = next(in);
  out << mixed.size(n);
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (const std::uint64_t index : pieces_of(mixed, n, epoch)) out << ' ' << index;
  }
  for (std::uint64_t places = next(in); places != 0; --places) {
    const std::uint64_t epoch = next(in);
    const ps::training_position at{epoch, next(in)};
    for (const auto& of : mixed.progress(at)) {
      out << ' ' << of.samples << ' ' << of.epoch << ' ' << of.in_epoch;
    }
    const auto length = [](std::size_t part, std::uint64_t index) {
      return (7 * index + part) % 13 + 1;
    };
    for (const std::uint64_t sum : mixed.total(at, length)) out << ' ' << sum;
  }
  std::cout << out.str() << '\n';
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in{line};
    try {
      answer(in);
    } catch (const ps::option_error& rejected) {
      std::cout << "rejected " << rejected.option() << '\n';
    }
  }
}
