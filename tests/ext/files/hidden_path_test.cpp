// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/hidden_path.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("a path is hidden if a part of it is", "[files][fault:files-25]") {
  for (const char* const path : {".DS_Store", "._1.jpg", ".ipynb_checkpoints/1.jpg", "a/.git/b",
                                 "a/__MACOSX/b.jpg", "Thumbs.db", "a/thumbs.db", "a/THUMBS.DB",
                                 "desktop.ini", "b/Desktop.ini", "./.a", "...", "/a/.b/"}) {
    CAPTURE(path);
    CHECK(ps::is_hidden_path(path));
  }
  for (const char* const path : {"", "/", "a", "a/.", "./a", "../a/b.jpg", ".", "a..b/c.", "a//b",
                                 "__macosx/1", "__meta__/1", "Thumbs.dbx", "a.DS_Store"}) {
    CAPTURE(path);
    CHECK_FALSE(ps::is_hidden_path(path));
  }
}
