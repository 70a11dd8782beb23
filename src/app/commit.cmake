# Writes ${OUTPUT}: what `tenuto --version` says. Rewritten only when it changes.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit "unknown")
else()
  execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  if(NOT changes STREQUAL "")
    string(APPEND commit ", with changes")
  endif()
endif()
set(text "// Generated: what was built.
#include \"app/commit.h\"

namespace tenuto {

const char* version_text() { return \"${VERSION}\"; }
const char* commit_text() { return \"${commit}\"; }
const char* build_type_text() { return \"${BUILD_TYPE}\"; }

}  // namespace tenuto
")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
