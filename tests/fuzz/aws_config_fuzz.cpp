// SPDX-License-Identifier: BSL-1.0
// A file of AWS's profiles out of any bytes: what is taken of it stands in it, on one line.
#include <penstock_ext/store/http/detail/s3/s3_place.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  for (const std::string_view profile : {"default", "work", ""}) {
    ps::detail::aws_profile found;
    try {
      ps::detail::read_aws_profile(text, "fuzzed", profile, found);
    } catch (const ps::file_format_error& error) {
      fuzz::require(error.offset() < size, "an error points into the text");
    }
    for (const std::string& value :
         {found.key_id, found.secret, found.session_token, found.region}) {
      fuzz::require(value.empty() || found.is_there, "a value belongs to the profile");
      fuzz::require(text.find(value) != std::string_view::npos, "a value stands in the text");
      fuzz::require(value.find('\n') == std::string::npos, "a value is of one line");
      fuzz::require(ps::detail::without_blanks(value) == value, "a value has no blanks around it");
    }
  }
  return 0;
}
