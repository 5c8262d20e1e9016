// SPDX-License-Identifier: BSL-1.0
#include "support/run_catch.hpp"

#include <filesystem>
#include <list>
#include <string>

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/interfaces/catch_interfaces_registry_hub.hpp>
#include <catch2/interfaces/catch_interfaces_testcase.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

namespace {

// Gives each test the name of its folder as a tag, as in [#flow]. CTest then lists the tests of one
// folder, although several folders share a program.
void tag_folders() {
  const auto tag_of = [](const char* file) {
    return "#" + std::filesystem::path(file).parent_path().filename().string();
  };
  const Catch::ITestCaseRegistry& tests = Catch::getRegistryHub().getTestCaseRegistry();
#if __has_include(<catch2/catch_session.hpp>)
  static std::list<std::string> texts;  // a tag refers to its text
  for (Catch::TestCaseInfo* test : tests.getAllInfos())
    test->tags.emplace_back(texts.emplace_back(tag_of(test->lineInfo.file)));
#else
  for (const Catch::TestCase& test : tests.getAllTests()) {
    std::vector<std::string> tags = test.tags;
    tags.push_back(tag_of(test.lineInfo.file));
    Catch::setTags(const_cast<Catch::TestCase&>(test),
                   tags);  // as Catch2 does for --filenames-as-tags
  }
#endif
}

}  // namespace

int test::run_catch(int argc, char** argv) {
  tag_folders();
  return Catch::Session().run(argc, argv);
}
