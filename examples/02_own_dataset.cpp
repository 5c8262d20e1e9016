// SPDX-License-Identifier: BSL-1.0
// A dataset with several fields and one bad sample. The length of one field is known only at run
// time. An exception from read keeps its type, and the loop receives it instead of the batch.
// last_failure() identifies the failed sample, and the loop can continue with the next batch.
#include <penstock/penstock.hpp>

#include <cstdint>
#include <iostream>
#include <stdexcept>

namespace ps = penstock;

// Sequences of up to `longest` values, padded with zeros.
class recordings {
 public:
  using record_type = ps::record<ps::field<"signal", float, ps::dyn>,
                                 ps::field<"length", std::uint32_t>, ps::field<"kind", int>>;

  explicit recordings(std::size_t longest) : longest_(longest) {}
  std::uint64_t size() const { return 400; }
  // The dynamic extents: one list per field, in the order of the fields in the record.
  ps::record_extents<record_type> extents() const { return {{longest_}, {}, {}}; }

  // Several threads call this function.
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    if (index == 77) throw std::runtime_error{"recording 77 is damaged"};
    const std::size_t length = 1 + index % longest_;
    // Every element must be written.
    const auto signal = ps::get<"signal">(out);
    for (std::size_t t = 0; t < signal.size(); ++t) signal[t] = t < length ? 0.5F : 0.0F;
    ps::get<"length">(out) = static_cast<std::uint32_t>(length);
    ps::get<"kind">(out) = static_cast<int>(index % 3);
  }

 private:
  std::size_t longest_;
};

int main() {
  ps::loader loader{recordings{100}, ps::sequential{}, {.batch_size = 20, .workers = 2}};
  std::uint64_t seen = 0;
  ps::batch_position next{.epoch = 0, .batch = 0};
  int failures = 0;
  while (next.batch != loader.batches_per_epoch()) {
    try {
      for (auto& batch : loader.batches(next, ps::until_epoch{1})) {
        next.batch = batch.number() + 1;
        seen += batch.size();
        if (ps::get<"signal">(batch)(3, 0) != 0.5F) return 1;
      }
    } catch (const std::runtime_error& error) {
      std::cout << error.what() << ": " << loader.last_failure()->str() << '\n';
      next.batch = loader.last_failure()->batch + 1;
      ++failures;
    }
  }
  std::cout << seen << " of " << loader.samples_per_epoch() << " samples seen\n";
  return seen == 380 && failures == 1 ? 0 : 1;
}
