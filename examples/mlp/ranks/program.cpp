// SPDX-License-Identifier: BSL-1.0
#include "program.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <vector>

#include <penstock/penstock.hpp>

#include "cuda_ranks.hpp"
#include "data.hpp"
#include "digit_source.hpp"
#include "host_backend.hpp"
#include "parallel_result.hpp"
#include "same_parameters.hpp"
#include "train.hpp"

namespace mlp {

namespace {

parallel_result train_on_device(const rank_options& chosen, const penstock::world& w,
                                host_ranks& ranks) {
  digit_source digits{chosen.samples};
  std::optional<digit_data> files;
  if (chosen.data) {
    files = read_data(*chosen.data);
    digits = {std::min(digits.count, files->train.size()), &files->train};
  }
  if (chosen.device == rank_device::cuda) return train_on_cuda(digits, w, ranks, chosen);
  const penstock::cpu_device device;
  return train_in_parallel(digits, w, device, host_backend{}, device.inline_stream(), ranks,
                           chosen);
}

std::string hex(std::uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

void report(const parallel_result& found, const penstock::world& w) {
  std::vector<std::uint64_t> bits;
  for (const float p : found.parameters) bits.push_back(std::bit_cast<std::uint32_t>(p));
  if (!found.resumed.empty()) std::cout << found.resumed << '\n';
  char loss[40];
  std::snprintf(loss, sizeof loss, "%a = %.6f", found.last_loss, found.last_loss);
  std::cout << "ranks      " << w.size << '\n'
            << "steps      " << found.steps << '\n'
            << "batches    " << hex(found.batches) << '\n'
            << "last loss  " << loss << '\n'
            << "parameters " << hex(hash_of(bits)) << std::endl;
}

}  // namespace

bool can_run(const rank_options& chosen, const std::string& who) {
  const auto reason = why_no_cuda_ranks();
  if (!reason || chosen.device != rank_device::cuda) return true;
  std::cerr << who << ": no --device cuda: " << *reason << '\n';
  return false;
}

void run(const rank_options& chosen, const penstock::world& w, host_ranks& ranks) {
  const auto found = train_on_device(chosen, w, ranks);
  require_same_parameters(found.parameters, ranks);
  if (w.rank == 0) report(found, w);
}

}  // namespace mlp
