// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The kernel of `on_device`. Requires nvcc.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

inline constexpr unsigned transform_threads = 256;

/// A word that is loaded or stored by a single instruction.
template <std::size_t Bytes>
struct machine_word;
template <>
struct machine_word<1> {
  using type = unsigned char;
};
template <>
struct machine_word<2> {
  using type = unsigned short;
};
template <>
struct machine_word<4> {
  using type = unsigned int;
};
template <>
struct machine_word<8> {
  using type = uint2;
};
template <>
struct machine_word<16> {
  using type = uint4;
};

/// Adjacent elements that are loaded or stored by a single instruction.
template <class T, unsigned Count>
struct element_pack {
  T values[Count];

  [[nodiscard]] static __device__ element_pack load(const T* from) {
    using word = typename machine_word<sizeof(element_pack)>::type;
    const word bits = *reinterpret_cast<const word*>(from);
    element_pack loaded;
    memcpy(&loaded, &bits, sizeof(word));
    return loaded;
  }
  __device__ void store(T* to) const {
    using word = typename machine_word<sizeof(element_pack)>::type;
    word bits;
    memcpy(&bits, this, sizeof(word));
    *reinterpret_cast<word*>(to) = bits;
  }
};

/// Returns the number of elements that a thread accesses with one instruction, which is the number
/// that fits in 16 bytes of the wider type. Adjacent threads then access adjacent bytes of both
/// arrays.
template <class In, class Out>
[[nodiscard]] consteval unsigned pack_size() {
  const auto is_power_of_two = [](std::size_t bytes) { return (bytes & (bytes - 1)) == 0; };
  const std::size_t wider = sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out);
  if (wider > 16 || !is_power_of_two(sizeof(In)) || !is_power_of_two(sizeof(Out))) return 1;
  return static_cast<unsigned>(16 / wider);
}

/// True if a function takes the element index within the field as second argument. Such a function
/// declares `using takes_place = void`.
template <class F>
inline constexpr bool takes_place = false;
template <class F>
  requires requires { typename F::takes_place; }
inline constexpr bool takes_place<F> = true;

/// The launch of one field. `blocks` blocks, starting at `first_block`, compute `count` elements of
/// `out` from elements of `in`. Both arrays are aligned to 256 bytes.
template <class In, class Out, class F>
struct field_task {
  static constexpr unsigned pack = pack_size<In, Out>();

  const In* in;
  Out* out;
  std::size_t count;
  F function;
  unsigned first_block = 0;
  unsigned blocks = 0;

  /// Assigns blocks to the task, starting at block `begin`. Returns the end of the assigned blocks.
  template <unsigned PerThread>
  [[nodiscard]] unsigned place(unsigned begin) {
    constexpr std::size_t of_block = std::size_t{transform_threads} * PerThread * pack;
    first_block = begin;
    blocks = static_cast<unsigned>((count + of_block - 1) / of_block);
    return begin + blocks;
  }

  /// Computes the elements of the calling thread, if its block belongs to this field.
  template <unsigned PerThread>
  __device__ void run() const {
    if (blockIdx.x < first_block || blockIdx.x - first_block >= blocks) return;
    constexpr std::size_t of_block = std::size_t{transform_threads} * PerThread * pack;
    const std::size_t begin = (blockIdx.x - first_block) * of_block;
    if (begin + of_block <= count) {
      run_whole_block<PerThread>(begin + threadIdx.x * pack);
    } else {
      run_last_block(begin);
    }
  }

 private:
  static constexpr unsigned stride = transform_threads * pack;

  [[nodiscard]] __device__ Out make_one(const In& value, [[maybe_unused]] std::size_t at) const {
    if constexpr (takes_place<F>) {
      return function(value, at);
    } else {
      return function(value);
    }
  }

  __device__ void make(const element_pack<In, pack>& from, std::size_t at) const {
    element_pack<Out, pack> made;
#pragma unroll
    for (unsigned i = 0; i < pack; ++i) made.values[i] = make_one(from.values[i], at + i);
    if constexpr (pack == 1) {
      out[at] = made.values[0];
    } else {
      made.store(out + at);
    }
  }

  [[nodiscard]] __device__ element_pack<In, pack> load(std::size_t at) const {
    if constexpr (pack == 1) {
      return {in[at]};
    } else {
      return element_pack<In, pack>::load(in + at);
    }
  }

  /// Issues all loads of a thread before its first store, to hide the load latency.
  template <unsigned PerThread>
  __device__ void run_whole_block(std::size_t at) const {
    element_pack<In, pack> loaded[PerThread];
#pragma unroll
    for (unsigned u = 0; u < PerThread; ++u) loaded[u] = load(at + u * stride);
#pragma unroll
    for (unsigned u = 0; u < PerThread; ++u) make(loaded[u], at + u * stride);
  }

  __device__ void run_last_block(std::size_t begin) const {
    const std::size_t whole = count / pack * pack;
    for (std::size_t i = begin + threadIdx.x * pack; i < whole; i += stride) make(load(i), i);
    const std::size_t i = whole + threadIdx.x;
    if (threadIdx.x < count - whole) out[i] = make_one(in[i], i);
  }
};

template <std::size_t, class Task>
struct task_at : Task {};

/// The tasks of all fields, passed to the kernel as a single argument.
template <class Indices, class... Tasks>
struct task_list;
template <std::size_t... Is, class... Tasks>
struct task_list<std::index_sequence<Is...>, Tasks...> : task_at<Is, Tasks>... {
  [[nodiscard]] std::size_t packs() const {
    return ((task_at<Is, Tasks>::count / Tasks::pack) + ...);
  }
  /// Assigns blocks to all tasks, and returns the number of blocks.
  template <unsigned PerThread>
  [[nodiscard]] unsigned place() {
    unsigned end = 0;
    ((end = task_at<Is, Tasks>::template place<PerThread>(end)), ...);
    return end;
  }
  template <unsigned PerThread>
  __device__ void run() const {
    (task_at<Is, Tasks>::template run<PerThread>(), ...);
  }
};

/// Transforms all fields of a batch in a single launch.
template <unsigned PerThread, class Tasks>
__global__ void __launch_bounds__(transform_threads)
    transform_fields(const __grid_constant__ Tasks tasks) {
  tasks.template run<PerThread>();
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
