// Ties a process to the launcher that started it.
#pragma once

namespace tenuto {

// Leaves signals to the launcher, which answers them for all its workers, and ends this process
// when the launcher ends. A program of coordinator.launch may stand between them: the worker then
// ends with either of the two. With `parent` 0 there is no launcher, and nothing is done. False
// when the launcher has ended already, which is said on stderr.
bool tie_to_parent(int parent);

}  // namespace tenuto
