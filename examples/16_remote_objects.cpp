// SPDX-License-Identifier: BSL-1.0
// Reads many objects at once, over HTTP or from S3. The arguments are the URL of a folder and the
// names of objects below it, or s3://bucket/prefix. If a bucket is given, the program lists it and
// skips folders and hidden files. The program prints the number of bytes and the way in which they
// were read.
#include <penstock_ext/files/hidden_path.hpp>
#include <penstock_ext/store/http/http_store.hpp>
#include <penstock_ext/store/http/s3_store.hpp>

#include <cstddef>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <vector>

namespace ps = penstock;

// Reads all objects completely, in a single call.
template <ps::batching_store Store>
void read_all(const Store& store, const std::vector<std::string>& names) {
  std::vector<std::vector<std::byte>> contents;
  std::vector<ps::byte_range> ranges;
  std::size_t bytes = 0;
  for (const std::string& name : names) {
    contents.emplace_back(store.size_of(name));
    ranges.push_back({name, 0, contents.back()});
    bytes += contents.back().size();
  }
  store.read_many(ranges);
  const ps::http_stats stats = store.stats();
  std::cout << names.size() << " objects, " << bytes << " bytes, " << stats.requests
            << " requests, " << stats.retries << " of them again, over " << stats.connections
            << " connections\n";
}

int main(int argc, char** argv) try {
  const std::vector<std::string> arguments{argv + 1, argv + argc};
  if (arguments.empty()) {
    std::cout << "16_remote_objects https://host/folder NAME...\n"
                 "16_remote_objects s3://bucket/prefix\n";
  } else if (arguments[0].starts_with("s3://")) {
    const std::string place = arguments[0].substr(5);
    const std::size_t slash = place.find('/');
    const std::string prefix = slash == std::string::npos ? "" : place.substr(slash + 1);
    const ps::s3_store bucket{place.substr(0, slash)};
    std::vector<std::string> names;
    for (const ps::s3_object& object : bucket.list(prefix)) {
      const bool is_folder = object.key.ends_with('/');
      if (!is_folder && !ps::is_hidden_path(object.key)) names.push_back(object.key);
    }
    read_all(bucket, names);
  } else {
    const ps::http_store folder{arguments[0], {.max_in_flight = 64}};
    read_all(folder, {arguments.begin() + 1, arguments.end()});
  }
} catch (const std::exception& problem) {
  std::cerr << "16_remote_objects: " << problem.what() << '\n';
  return 1;
}
