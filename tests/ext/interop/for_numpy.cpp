// SPDX-License-Identifier: BSL-1.0
// Functions that numpy_dlpack.py calls with ctypes, to export batches as tensors and to import
// tensors.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include <penstock/device/cpu_device.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock_ext/interop.hpp>

namespace ps = penstock;

namespace {

using numbers = ps::record<ps::field<"x", std::int32_t, 2, 3>, ps::field<"is_odd", bool>>;
using host_ring = ps::detail::host_slots<ps::cpu_device>;

const std::shared_ptr<host_ring>& both_slots() {
  static const auto ring = std::make_shared<host_ring>(
      ps::cpu_device{}, ps::batch_layout<numbers>{{{}, {}}, 4}, 2, ps::detail::memory_kind::pinned);
  return ring;
}

std::string said;

}  // namespace

extern "C" {

/// Returns a `DLManagedTensorVersioned` for a field of a batch of four samples: x with consecutive
/// values, or is_odd. Returns null if both slots are held.
[[gnu::visibility("default")]] void* batch_as_tensor(int of_x, int read_only) {
  const auto slot = both_slots()->try_acquire();
  if (!slot) return nullptr;
  ps::host_batch<numbers, ps::cpu_device> lease{both_slots(), *slot, {.size = 4, .valid_size = 4}};
  const auto x = ps::get<"x">(lease).flat();
  std::iota(x.begin(), x.end(), 0);
  for (std::size_t i = 0; i < 4; ++i) ps::get<"is_odd">(lease)[i] = i % 2 == 1;
  const auto batch = ps::share(std::move(lease));
  const ps::dlpack_options how{.read_only = read_only != 0};
  return (of_x != 0 ? ps::to_dlpack<"x">(batch, how) : ps::to_dlpack<"is_odd">(batch, how))
      .release();
}

/// Returns the number of batches that tensors hold.
[[gnu::visibility("default")]] int batches_held() {
  return static_cast<int>(both_slots()->leased());
}

/// Takes ownership of a `DLManagedTensorVersioned` with samples of three floats. Returns the sum of
/// each value times the number of its sample, starting at 1, or -1 if the tensor is rejected.
[[gnu::visibility("default")]] double sum_of_samples(void* tensor) {
  using point = ps::record<ps::field<"x", float, 3>>;
  try {
    const ps::tensor_dataset<point> data{
        ps::dlpack::managed_ptr{static_cast<ps::dlpack::managed_tensor*>(tensor)}};
    double sum = 0;
    for (std::uint64_t n = 0; n < data.size(); ++n) {
      for (const float x : ps::get<"x">(data.view(n)).flat()) sum += x * static_cast<double>(n + 1);
    }
    return sum;
  } catch (const ps::dlpack_error& rejected) {
    said = rejected.what();
    return -1;
  }
}

/// Returns the reason why the last tensor was rejected.
[[gnu::visibility("default")]] const char* why_rejected() { return said.c_str(); }
}
