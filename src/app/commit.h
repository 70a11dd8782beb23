// The version and commit of this build; commit.cmake writes them at each build.
#pragma once

namespace tenuto {

// The version of Tenuto, "0.1.0".
const char* version_text();
// The commit, shortened, and whether files differed from it; "unknown" outside a repository.
const char* commit_text();
// "Release", "Debug", ...
const char* build_type_text();

}  // namespace tenuto
