// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <type_traits>

#include <penstock/transfer/batch_source.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock/transfer/options.hpp>

/// @file
/// What `transfer{...}` says when its arguments are not those of a transfer, as `loader.hpp` does
/// for a loader.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What `transfer` asks of its source and its transform.
template <class Source, class Transform>
concept transferable =
    batch_source<Source> &&
    (std::same_as<Transform, no_transform> ||
     device_transform<Transform, typename Source::record_type, typename Source::device_type>);

/// Whether a type is a `transfer`, which is moved by `transfer{std::move(feed)}`.
template <class T>
inline constexpr bool is_transfer = false;

/// Stands for the stream of a transfer that names none.
struct no_stream {};

/// The arguments of a transfer, each of which must be what its place asks for.
template <class Source, class Stream = no_stream, class Transform = no_transform>
struct carried {
  using unqualified = std::remove_reference_t<Source>;
  // A transfer: clang 14 looks in here before it looks at what a guide requires.
  static_assert(batch_source<unqualified> || is_transfer<std::remove_const_t<unqualified>>,
                "penstock::transfer: the first argument must be a source of batches that is not "
                "const: a ps::loader, or a type that models ps::batch_source");
  static constexpr bool is_fed_to_a_stream = [] {
    if constexpr (batch_source<unqualified> && !std::same_as<Stream, no_stream>) {
      using device = typename unqualified::device_type;
      return std::convertible_to<Stream, typename device::stream_ref> ||
             std::convertible_to<Stream, const device&> ||
             std::convertible_to<Stream, transfer_options>;
    }
    return true;
  }();
  static_assert(
      is_fed_to_a_stream,
      "penstock::transfer: the second argument must be the stream that your step runs on, "
      "one of the loader's device; or that device, where the loop's body is the step");
  static constexpr bool is_transformed = [] {
    if constexpr (batch_source<unqualified> && !std::same_as<Transform, no_transform> &&
                  !std::same_as<Transform, transfer_options>) {  // clang 14, as above
      return device_transform<Transform, typename unqualified::record_type,
                              typename unqualified::device_type>;
    }
    return true;
  }();
  static_assert(is_transformed,
                "penstock::transfer: the third argument must be a transform of the loader's record "
                "on its device, as ps::on_stream or ps::on_device makes one; or options");
  using source_type = Source;
};

/// Arguments whose options do not come last.
template <class Source>
struct carried_with_early_options : carried<Source> {
  static_assert(
      !batch_source<std::remove_reference_t<Source>>,
      "penstock::transfer: options come last: transfer feed{loader, stream, {.depth = 3}}");
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
