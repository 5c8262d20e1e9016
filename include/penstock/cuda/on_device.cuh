// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Transforms of a `transfer` that are made of device functions. Needs nvcc.

#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/record.hpp>
#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/cuda/detail/cuda_context.hpp>
#include <penstock/cuda/detail/transform_kernel.cuh>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

struct same_value {
  template <class T>
  [[nodiscard]] __device__ T operator()(const T& value) const {
    return value;
  }
};

template <name... Names>
struct name_list {
  static constexpr std::size_t size = sizeof...(Names);
  /// The place of `key` in the list, `size` if it is not there.
  static consteval std::size_t index_of(const name& key) {
    constexpr name keys[] = {Names...};
    for (std::size_t i = 0; i < size; ++i) {
      if (keys[i] == key) return i;
    }
    return size;
  }
  /// Whether a record of these fields has them all.
  template <class... Fields>
  static consteval bool are_among() {
    return (has<Fields...>(Names) && ...);
  }

 private:
  template <class... Fields>
  static consteval bool has(const name& key) {
    return ((Fields::key == key) || ...);
  }
};

template <class F, class In>
struct made_by {
#if defined(__CUDACC_EXTENDED_LAMBDA__)
  static_assert(!__nv_is_extended_device_lambda_closure_type(F) ||
                    __nv_is_extended_device_lambda_with_preserved_return_type(F),
                "penstock::on_device: a __device__ lambda has to name its result: "
                "[] __device__ (std::uint8_t x) -> float { ... }");
#endif
  // On the host the stand-in of a __device__ lambda is not callable as const.
  using callable = std::conditional_t<std::is_invocable_v<const F&, const In&>, const F&, F&>;
  static_assert(std::is_invocable_v<callable, const In&>,
                "penstock::on_device: the function can't be called with an element of the field");
  using type = std::remove_cvref_t<std::invoke_result_t<callable, const In&>>;
};

/// The name is written anew, because of nvcc; see `on_device`.
template <class Field, class T, class Lengths = typename Field::extents_type>
struct field_with;
template <class Field, class T, std::size_t... Extents>
struct field_with<Field, T, extents<Extents...>> {
  using type = field<name{Field::key.word0, Field::key.word1, Field::key.word2, Field::key.word3},
                     T, Extents...>;
};

/// What becomes of `Field` under the functions of the fields called `Names`.
template <class Field, class Names, class Functions,
          bool = Names::index_of(Field::key) < Names::size>
struct made_field {
  using type = Field;
};
template <class Field, class Names, class Functions>
struct made_field<Field, Names, Functions, true> {
  using function = std::tuple_element_t<Names::index_of(Field::key), Functions>;
  using type =
      typename field_with<Field,
                          typename made_by<function, typename Field::value_type>::type>::type;
};

template <class In, class Names, class Functions>
struct made_record;
template <class... Fields, class Names, class Functions>
struct made_record<record<Fields...>, Names, Functions> {
  static_assert(Names::template are_among<Fields...>(),
                "penstock::on_device: the record has no such field");
  using type = record<typename made_field<Fields, Names, Functions>::type...>;
};

}  // namespace detail

/// What `on_device` makes: a `device_transform` of any record that has the fields called `Names`.
template <class Names, class... Fs>
class field_transform {
  using functions = std::tuple<Fs...>;

 public:
  /// The record of what comes out, when `In` comes in.
  template <record_type In>
  using record_for = typename detail::made_record<In, Names, functions>::type;

  /// One function for each field in `Names`.
  explicit field_transform(Fs... made) : functions_(std::move(made)...) {}

  /// As they are: an element becomes an element.
  template <record_type In>
  [[nodiscard]] record_extents<record_for<In>> extents(const record_extents<In>& lengths) const {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return record_extents<record_for<In>>{lengths.template at<Is>()...};
    }
    (std::make_index_sequence<In::size>{});
  }

  /// Loads the kernels, which would make the first batch wait for the device.
  template <record_type In>
  void prepare(const cuda_device& device, const batch_layout<In>&) const {
    const detail::scoped_device current{device.ordinal()};
    const detail::scoped_relaxed_capture relaxed;
    using list = decltype(tasks<In>(std::declval<const const_batch_view<In>&>(),
                                    std::declval<const batch_view<record_for<In>>&>(),
                                    std::make_index_sequence<In::size>{}));
    load<list>();
  }

  /// One launch on the thread's current device. Throws what `cuda_error` and its children say.
  template <record_type In>
  void enqueue(const_batch_view<In> in, batch_view<record_for<In>> out,
               cuda_stream_ref stream) const {
    auto all = tasks<In>(in, out, std::make_index_sequence<In::size>{});
    if (all.packs() < many_packs) {
      launch<1>(all, stream);
    } else {
      launch<4>(all, stream);
    }
  }

 private:
  // From here on every thread does four packs: one each fills the largest GPUs (2^18 threads), and
  // more loads under way hide more of the memory's latency.
  static constexpr std::size_t many_packs = std::size_t{1} << 20;

  template <record_type In, std::size_t Index>
  [[nodiscard]] auto task(const const_batch_view<In>& in,
                          const batch_view<record_for<In>>& out) const {
    using in_field = typename In::template field_at<Index>;
    constexpr std::size_t place = Names::index_of(in_field::key);
    const auto from = in.template at<Index>();
    const auto to = out.template at<Index>();
    if constexpr (place == Names::size) {
      return detail::field_task<std::byte, std::byte, detail::same_value>{
          reinterpret_cast<const std::byte*>(from.data()),
          reinterpret_cast<std::byte*>(to.data()),
          from.size() * sizeof(typename in_field::value_type),
          {}};
    } else {
      using in_type = typename in_field::value_type;
      using out_type = typename record_for<In>::template field_at<Index>::value_type;
      return detail::field_task<in_type, out_type, std::tuple_element_t<place, functions>>{
          from.data(), to.data(), from.size(), std::get<place>(functions_)};
    }
  }

  template <record_type In, std::size_t... Is>
  [[nodiscard]] auto tasks(const const_batch_view<In>& in, const batch_view<record_for<In>>& out,
                           std::index_sequence<Is...>) const {
    return listed<Is...>(task<In, Is>(in, out)...);
  }
  template <std::size_t... Is, class... Tasks>
  [[nodiscard]] static auto listed(const Tasks&... tasks) {
    return detail::task_list<std::index_sequence<Is...>, Tasks...>{{tasks}...};
  }

  template <class Tasks>
  static void load() {
    const auto look_at = [](auto* kernel) {
      detail::cuda_call("cudaFuncGetAttributes", [&] {
        cudaFuncAttributes attributes{};
        return cudaFuncGetAttributes(&attributes, kernel);
      });
    };
    look_at(&detail::transform_fields<1, Tasks>);
    look_at(&detail::transform_fields<4, Tasks>);
  }

  template <unsigned PerThread, class Tasks>
  static void launch(Tasks& tasks, cuda_stream_ref stream) {
    cudaLaunchConfig_t config{};
    config.gridDim = tasks.template place<PerThread>();
    if (config.gridDim.x == 0) return;  // all samples skipped; CUDA refuses a grid without blocks
    config.blockDim = detail::transform_threads;
    config.stream = stream.get();
    detail::cuda_call("cudaLaunchKernelEx", [&] {
      return cudaLaunchKernelEx(&config, &detail::transform_fields<PerThread, Tasks>, tasks);
    });
  }

  functions functions_;
};

/// A transform of a `transfer` that runs functions on the device, element by element, after the
/// copy and under the next one: one function for each field named, in that order. The other fields
/// are copied in the same launch.
///
///     struct to_float { __device__ float operator()(std::uint8_t x) const { return x / 255.0F; } };
///     ps::transfer feed{loader, stream, ps::on_device<"image">(to_float{}), {.depth = 3}};
///
/// A field has the type that its function returns: here `field<"image", std::uint8_t, 28, 28>`
/// travels and `field<"image", float, 28, 28>` arrives. A function is trivially copyable and called
/// as const; a `__device__` lambda (--extended-lambda) has to name its result by `-> float`.
template <name... Names, class... Fs>
  requires(sizeof...(Names) > 0 && sizeof...(Names) == sizeof...(Fs))
// No deduced result: nvcc 13.0 would hand a name in it to the host's compiler as one it does not
// know.
[[nodiscard]] field_transform<detail::name_list<Names...>, Fs...> on_device(Fs... functions) {
  static_assert(
      (std::is_trivially_copyable_v<Fs> && ...),
      "penstock::on_device: a function must be trivially copyable: it travels to the device "
      "as bytes");
  return field_transform<detail::name_list<Names...>, Fs...>{std::move(functions)...};
}

/// What values are measured by, see `normalised`.
struct normalisation {
  double mean = 0.0;       ///< of the values divided by `maximum`
  double deviation = 1.0;  ///< likewise; not 0
  double maximum = 255.0;  ///< what counts as 1
};

/// x * scale + shift, rounded once: the same bits on device and host.
struct scaled_and_shifted {
  /// What a value is multiplied by.
  float scale = 1.0F;
  /// What is added then.
  float shift = 0.0F;

  /// The value, scaled and shifted.
  template <class T>
    requires std::is_arithmetic_v<T>
  [[nodiscard]] __host__ __device__ float operator()(T value) const {
    return fmaf(static_cast<float>(value), scale, shift);
  }
};

/// A function for `on_device` that makes (x / maximum - mean) / deviation of a number, as a float:
/// `on_device<"image">(normalised({.mean = 0.1307, .deviation = 0.3081}))`.
[[nodiscard]] constexpr scaled_and_shifted normalised(const normalisation& by) {
  return {static_cast<float>(1.0 / (by.maximum * by.deviation)),
          static_cast<float>(-by.mean / by.deviation)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
