// SPDX-License-Identifier: BSL-1.0
// Tests that in an unchecked build the checks add nothing to the size of types.
#include <type_traits>

#include "ramps.hpp"

static_assert(!PENSTOCK_CHECKED);

namespace {

using namespace checked_tests;
using record = ramps::record_type;

static_assert(std::is_empty_v<ps::detail::lease_tag> && std::is_empty_v<ps::detail::lease_guard> &&
              std::is_empty_v<ps::detail::call_gate>);

static_assert(sizeof(ps::tensor_view<float>) == sizeof(float*));
static_assert(sizeof(ps::tensor_view<float, 4, 4>) == sizeof(float*));
static_assert(sizeof(ps::tensor_view<float, ps::dyn, 4, 4>) ==
              sizeof(float*) + sizeof(std::size_t));
static_assert(std::is_trivially_copyable_v<ps::tensor_view<float, ps::dyn, 4, 4>>);
static_assert(sizeof(ps::sample<record>) == 3 * sizeof(void*));
static_assert(sizeof(ps::batch_view<record>) == 2 * sizeof(void*) + 2 * sizeof(std::size_t));

struct host_lease {
  std::shared_ptr<void> slots;
  std::uint32_t slot;
  ps::batch_info info;
};
static_assert(sizeof(ps::host_batch<record, ps::cpu_device>) == sizeof(host_lease));

struct device_lease {
  std::shared_ptr<void> slots;
  std::size_t slot;
  ps::batch_info info;
};
static_assert(sizeof(ps::device_batch<record, ps::cpu_device>) == sizeof(device_lease));

struct range {
  std::shared_ptr<void> flow;
  ps::batch_position from;
  std::uint64_t last_epoch;
  std::uint64_t ticket;
};
using loader = ps::loader<ramps, ps::sequential, ps::cpu_device>;
static_assert(sizeof(loader::range_type) == sizeof(range));
static_assert(sizeof(loader::range_type::iterator) == sizeof(void*));

}  // namespace

int main() {}
