// SPDX-License-Identifier: BSL-1.0
// Imports a tensor of another library with arbitrary properties. The tensor must be rejected, or
// every sample must lie at the described location within the address space. The tensor must be
// freed exactly once. The data are never read.
#include <penstock_ext/interop/tensor_dataset.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fuzz/require.hpp"

namespace ps = penstock;
namespace dl = penstock::dlpack;

namespace {

/// The fields of an input. Missing bytes read as 0.
struct input {
  std::uint32_t layout;
  std::int32_t rank;
  dl::data_type type;
  dl::place where;
  std::uint64_t address;
  std::uint64_t byte_offset;
  std::uint8_t without;  // bit 0: no shape; bit 1: no strides
  std::array<std::int64_t, 3> shape;
  std::array<std::int64_t, 3> strides;
};

__extension__ using wide = __int128;

template <std::size_t... Extents>
void import_as(input from) {
  int freed = 0;
  dl::managed_tensor managed{};
  managed.version.layout = from.layout;
  managed.context = &freed;
  managed.deleter = [](dl::managed_tensor* own) { ++*static_cast<int*>(own->context); };
  managed.array = {reinterpret_cast<void*>(from.address),
                   from.where,
                   from.rank,
                   from.type,
                   (from.without & 1) != 0 ? nullptr : from.shape.data(),
                   (from.without & 2) != 0 ? nullptr : from.strides.data(),
                   from.byte_offset};
  try {
    const auto samples = ps::from_dlpack<std::int32_t, Extents...>(dl::managed_ptr{&managed});
    fuzz::require(freed == 0, "what is held is not freed");
    fuzz::require(samples.size() == static_cast<std::uint64_t>(from.shape[0]), "its samples");
    const wide row = static_cast<wide>(samples.extents().size()) * 4;
    for (std::uint64_t index = 0; index < samples.size(); index += samples.size() / 3 + 1) {
      const bool stays = samples.size() == 1 || managed.array.strides == nullptr;
      const wide step = stays ? row : static_cast<wide>(from.strides[0]) * 4;
      const wide begin = static_cast<wide>(from.address) + from.byte_offset + index * step;
      fuzz::require(begin >= 0 && begin % 4 == 0, "a sample is aligned");
      fuzz::require(begin + row <= static_cast<wide>(~std::uint64_t{0}), "and in one piece");
      fuzz::require(reinterpret_cast<std::uintptr_t>(samples[index].data()) ==
                        static_cast<std::uint64_t>(begin),
                    "a sample lies where the strides say");
    }
    if (samples.is_contiguous()) {
      fuzz::require(samples.flat().size() == samples.size() * samples.extents().size(),
                    "all samples are one array");
    }
  } catch (const ps::dlpack_error& error) {
    fuzz::require(!error.part().empty(), "an error says what does not fit");
  }
  fuzz::require(freed == 1, "a tensor is freed once");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input from{};
  std::memcpy(static_cast<void*>(&from), data, size < sizeof from ? size : sizeof from);
  import_as<2, 3>(from);
  import_as<ps::dyn, ps::dyn>(from);
  import_as<>(from);
  return 0;
}
