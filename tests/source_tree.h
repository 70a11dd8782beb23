// Where the project's files lie, for tests that read them.
#pragma once

#include <string>

namespace tenuto {

// The root of the project's tree, without a slash at its end. Only source_tree.cc is compiled with
// this path: the compiler's cache serves every other file of the tests to another copy of the tree.
std::string source_tree();

}  // namespace tenuto
