// Where a coordinator may be reached.
//
// Right: tests/control/conversation_test.cc
#pragma once

#include <string>
#include <vector>

namespace tenuto {

// The addresses in a text such as "10.0.0.1:7000" or, if the coordinator may move to another host,
// "10.0.0.1:7000,10.0.0.2:7000". At most one coordinator listens at a time. Never empty.
std::vector<std::string> addresses_in(const std::string& coordinator);

}  // namespace tenuto
