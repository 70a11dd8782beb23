#include "source_tree.h"

namespace tenuto {

std::string source_tree() { return TENUTO_SOURCE_DIR; }

}  // namespace tenuto
