# What every folder's CMakeLists uses: one library per folder, one function per test.

find_package(Threads REQUIRED)

# How our own code is compiled. Nobody inherits it: the warnings are not those of other projects.
add_library(tenuto_options INTERFACE)
target_include_directories(tenuto_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(tenuto_options INTERFACE -Wall -Wextra -Wpedantic -Werror -Wshadow
                       -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers)
# g++ 12 sees overlapping copies in "text" + std::string that are not there (its bug 105651).
target_compile_options(tenuto_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
target_link_libraries(tenuto_options INTERFACE Threads::Threads)
# Nobody replaces a function of ours at load time, so position-independent code may inline it, too.
target_compile_options(tenuto_options INTERFACE -fno-semantic-interposition)
if(TENUTO_SANITIZE STREQUAL "address")
  target_compile_options(tenuto_options INTERFACE -fsanitize=address,undefined
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(tenuto_options INTERFACE -fsanitize=address,undefined)
  # g++ takes memory that its own instrumentation touches for uninitialised; the release build,
  # where the warning is dependable, keeps it.
  target_compile_options(tenuto_options INTERFACE
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
elseif(TENUTO_SANITIZE STREQUAL "thread")
  target_compile_options(tenuto_options INTERFACE -fsanitize=thread)
  target_link_options(tenuto_options INTERFACE -fsanitize=thread)
elseif(NOT TENUTO_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TENUTO_SANITIZE is '${TENUTO_SANITIZE}': expected address, thread or empty")
endif()

if(TENUTO_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TENUTO_FUZZ needs clang, found ${CMAKE_CXX_COMPILER_ID}")
  endif()
endif()
# The folders whose code reads input. Only these are compiled with the counters by which fuzzers
# know what an input has reached: counters everywhere would make every test slower.
set(TENUTO_READERS analysis base control ir page parameter_server plan protocol transport
    transport_tcp world)
# tenuto_count(TARGET) compiles the target with libFuzzer's counters if fuzzers are built.
function(tenuto_count target)
  if(TENUTO_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# tenuto_headers(NAME TARGET... [HEADERS <header> ...]) makes the precompiled headers NAME for what
# links to these targets: some of the standard library, and HEADERS.
# A compiler's time goes into reading the same headers again: tests and sanitized builds read them
# once. Otherwise they are read for every file, which so has to include what it needs.
function(tenuto_headers name)
  cmake_parse_arguments(arg "" "" "HEADERS" ${ARGN})
  set(headers <algorithm> <chrono> <functional> <map> <memory> <optional> <set> <sstream> <string>
              <string_view> <thread> <variant> <vector> ${arg_HEADERS})
  set(source ${PROJECT_BINARY_DIR}/generated/headers.cc)
  if(NOT EXISTS ${source})
    file(WRITE ${source} "// For the precompiled headers alone.\n")
  endif()
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE tenuto_options ${arg_UNPARSED_ARGUMENTS})
  target_precompile_headers(${name} PRIVATE ${headers})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    tenuto_sum_headers(${name} ${headers})
  endif()
endfunction()

# What clang precompiles contains times and paths, so ccache would never find what another clone has
# compiled with it. With CCACHE_PCH_EXTSUM it compares this file instead: the sum of all that the
# headers include. If one of these changes, it is made anew.
function(tenuto_sum_headers name)
  list(TRANSFORM ARGN PREPEND "#include ")
  list(JOIN ARGN "\n" text)
  set(source ${PROJECT_BINARY_DIR}/generated/${name}.cc)
  file(WRITE ${source} "${text}\n")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -M ${source}
                  OUTPUT_VARIABLE rule COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "/[^ \\\n]+" files "${rule}")
  list(REMOVE_ITEM files ${source})
  set(sums ${name} ${CMAKE_CXX_COMPILER_VERSION})
  foreach(file IN LISTS files)
    file(SHA256 ${file} sum)
    list(APPEND sums ${sum})
  endforeach()
  string(SHA256 sum "${sums}")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx.pch.sum "${sum}\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
endfunction()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # CMake would include the headers' own file besides, by a path that differs in each clone.
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -Xclang -include-pch -Xclang <PCH_FILE>)
endif()
if(TENUTO_SANITIZE)
  # How the sanitized builds compile code that waits more than it computes.
  add_library(tenuto_waiting_options INTERFACE)
  target_compile_options(tenuto_waiting_options INTERFACE -O0)
  tenuto_headers(tenuto_library_headers)
  tenuto_headers(tenuto_waiting_headers tenuto_waiting_options)
  tenuto_headers(tenuto_reader_headers)  # they must be compiled as what includes them is
  tenuto_count(tenuto_reader_headers)
endif()

# tenuto_library(FOLDER SOURCES a.cc ... LINKS lower_folder ... [EXTERNAL target ...] [WAITS])
# makes the library tenuto_FOLDER, linked to the folders below it that it sees. Other projects call
# it tenuto::FOLDER, whether they found it installed or have this tree as a part of theirs. WAITS:
# its code waits more than it computes, so the sanitized builds do not optimise it.
function(tenuto_library folder)
  cmake_parse_arguments(arg "WAITS" "" "SOURCES;LINKS;EXTERNAL" ${ARGN})
  add_library(tenuto_${folder} STATIC ${arg_SOURCES})
  add_library(tenuto::${folder} ALIAS tenuto_${folder})
  set_target_properties(tenuto_${folder} PROPERTIES EXPORT_NAME ${folder}
                        POSITION_INDEPENDENT_CODE "${package}")
  target_compile_features(tenuto_${folder} PUBLIC cxx_std_20)
  target_include_directories(tenuto_${folder} PUBLIC
                             $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/tenuto>)
  list(TRANSFORM arg_LINKS PREPEND tenuto_)
  target_link_libraries(tenuto_${folder} PUBLIC ${arg_LINKS} Threads::Threads
                        PRIVATE $<BUILD_INTERFACE:tenuto_options> ${arg_EXTERNAL})
  set(headers tenuto_library_headers)
  if(folder IN_LIST TENUTO_READERS)
    tenuto_count(tenuto_${folder})
    set(headers tenuto_reader_headers)
  endif()
  if(arg_WAITS AND TENUTO_SANITIZE)
    target_link_libraries(tenuto_${folder} PRIVATE $<BUILD_INTERFACE:tenuto_waiting_options>)
    set(headers tenuto_waiting_headers)
  endif()
  if(TENUTO_SANITIZE AND NOT folder STREQUAL "engine")  # torch has flags of its own
    target_precompile_headers(tenuto_${folder} REUSE_FROM ${headers})
  endif()
endfunction()

# tenuto_proto(TARGET FOLDER NAME.proto) makes the library TARGET of the code that protoc generates
# from src/FOLDER/NAME.proto, to be included as FOLDER/NAME.pb.h. It is not held to our warnings.
function(tenuto_proto target folder proto)
  find_package(Protobuf REQUIRED)
  find_package(PkgConfig REQUIRED)
  # pkgconf follows each path through the requirements of gRPC, which are many thousands and take it
  # a second for each question of CMake's; no library is further away than this.
  set(ENV{PKG_CONFIG_MAXIMUM_TRAVERSE_DEPTH} 6)
  pkg_check_modules(GRPCPP REQUIRED IMPORTED_TARGET GLOBAL grpc++)
  # Not protobuf::libprotobuf: torch's package defines an empty target of that name.
  pkg_check_modules(PROTOBUF REQUIRED IMPORTED_TARGET GLOBAL protobuf)
  find_program(TENUTO_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
  set(generated ${PROJECT_BINARY_DIR}/generated)
  string(REPLACE .proto "" name ${proto})
  set(files ${name}.pb.cc ${name}.pb.h ${name}.grpc.pb.cc ${name}.grpc.pb.h)
  list(TRANSFORM files PREPEND ${generated}/${folder}/)
  add_custom_command(
    OUTPUT ${files}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}
    COMMAND ${Protobuf_PROTOC_EXECUTABLE} -I ${PROJECT_SOURCE_DIR}/src --cpp_out=${generated}
            --grpc_out=${generated} --plugin=protoc-gen-grpc=${TENUTO_GRPC_PLUGIN}
            ${folder}/${proto}
    DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/${proto} VERBATIM)
  add_library(${target} STATIC ${files})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE "${package}")
  target_include_directories(${target} SYSTEM PUBLIC ${generated})
  target_link_libraries(${target} PUBLIC tenuto_options PkgConfig::PROTOBUF PkgConfig::GRPCPP)
  target_compile_options(${target} PRIVATE -w)
endfunction()

# How the code of tests is compiled: most of it is compiled more often than it is waited for. The
# options of the tests whose own code computes for long have "busy" in their name.
add_library(tenuto_busy_test_options INTERFACE)
target_compile_options(tenuto_busy_test_options INTERFACE $<$<CONFIG:Release>:-O1>)
# Without this ccache would not keep what g++ compiles with precompiled headers.
target_compile_options(tenuto_busy_test_options INTERFACE
                       $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
add_library(tenuto_test_options INTERFACE)
target_link_libraries(tenuto_test_options INTERFACE tenuto_busy_test_options)
if(TENUTO_SANITIZE)
  target_compile_options(tenuto_test_options INTERFACE -O0)
endif()

# The programs of the tests with label threads: all that the thread sanitizer's run needs.
add_custom_target(thread_tests)

# What computes takes two slots of ctest, what waits takes one. What computes for long takes as many
# as `run` gives ctest for each core, so that it has a core for itself (docs/decisions/059).
set(TENUTO_SLOTS_TO_COMPUTE 2)
set(TENUTO_SLOTS_OF_A_CORE 4)
if(TENUTO_SANITIZE)
  set(TENUTO_SLOTS_OF_A_CORE 2)
endif()

# tenuto_test(NAME SOURCES a_test.cc ... LINKS folder ... [WHOLE] [CORE] [BUSY] [LABELS label]
#             [TIMEOUT seconds])
# makes the GoogleTest program NAME. Each of its cases is a ctest test; WHOLE: the program is one
# test (for many short cases of a program that is slow to start). CORE: each test computes for many
# seconds, so it has a core for itself. BUSY: its own code, not that which
# it tests, computes for long, so the sanitized builds optimise it, too.
# Labels: threads = also run under the thread sanitizer; torch = needs the torch island;
# processes = starts real processes.
# UCX_MEM_EVENTS=n: when its library is loaded UCX hooks the memory calls of the process, which TCP
# does not need and the thread sanitizer does not survive.
function(tenuto_test name)
  cmake_parse_arguments(arg "WHOLE;CORE;BUSY" "TIMEOUT" "SOURCES;LINKS;EXTERNAL;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)  # several times the slowest case under the sanitizers
  endif()
  add_executable(${name} ${arg_SOURCES})
  list(TRANSFORM arg_LINKS PREPEND tenuto_)
  target_link_libraries(${name} PRIVATE tenuto_options ${arg_LINKS} ${arg_EXTERNAL} source_tree
                        GTest::gtest GTest::gtest_main)
  set(kind test)
  if(arg_BUSY)
    set(kind busy_test)
  endif()
  target_link_libraries(${name} PRIVATE tenuto_${kind}_options)
  if(NOT "torch" IN_LIST arg_LABELS)  # torch has flags of its own
    target_precompile_headers(${name} REUSE_FROM tenuto_${kind}_headers)
  endif()
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(thread_tests ${name})
  endif()
  set(properties TIMEOUT ${arg_TIMEOUT} ENVIRONMENT UCX_MEM_EVENTS=n)
  if(arg_CORE)
    list(APPEND properties PROCESSORS ${TENUTO_SLOTS_OF_A_CORE} COST 300)
  else()
    list(APPEND properties PROCESSORS ${TENUTO_SLOTS_TO_COMPUTE})
  endif()
  if(arg_LABELS)
    list(LENGTH arg_LABELS labels)
    if(labels GREATER 1)  # gtest_discover_tests would lose the second
      message(FATAL_ERROR "${name}: LABELS takes one label, found '${arg_LABELS}'")
    endif()
    list(APPEND properties LABELS ${arg_LABELS})
  endif()
  if(arg_WHOLE)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES COST 200 ${properties})
  else()
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
  endif()
endfunction()

# tenuto_python_tests(PREFIX a_test.py ... [ENVIRONMENT NAME=VALUE ...] [SKIP sentences])
# makes every test method of these files a ctest test of its own, PREFIX.a_test.CLASS.METHOD, with
# the label processes. Where the output matches the regular expression SKIP, it counts as skipped.
# Sanitized builds leave out the methods that are marked @another_case, and `./run test` those
# marked @long_case, which get the label long.
# Processes wait more than they compute, so each test takes one slot, but a core's if the method is
# marked @busy_case. They are the longest tests, so they start first; those of a core before all
# others, because later so many slots would never be free at once.
function(tenuto_python_tests prefix)
  cmake_parse_arguments(arg "" "SKIP" "ENVIRONMENT" ${ARGN})
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  foreach(file ${arg_UNPARSED_ARGUMENTS})
    set(path ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(STRINGS ${path} lines REGEX "^class |^    @[a-z]+_case$|^    def test_")
    get_filename_component(module ${file} NAME_WE)
    set(class "")
    set(marks "")
    set(found FALSE)
    foreach(line IN LISTS lines)
      if(line MATCHES "^class ([A-Za-z0-9_]+)")
        set(class ${CMAKE_MATCH_1})
      elseif(line MATCHES "@([a-z]+_case)")
        list(APPEND marks ${CMAKE_MATCH_1})
      elseif(line MATCHES "def (test_[A-Za-z0-9_]+)")
        set(case ${module}.${class}.${CMAKE_MATCH_1})
        set(found TRUE)
        if(NOT (TENUTO_SANITIZE AND "another_case" IN_LIST marks))
          add_test(NAME ${prefix}.${case}
                   COMMAND ${Python3_EXECUTABLE} -m unittest -v ${case}
                   WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
          set_tests_properties(${prefix}.${case} PROPERTIES
            ENVIRONMENT "${arg_ENVIRONMENT};PYTHONDONTWRITEBYTECODE=1" TIMEOUT 600 COST 100
            SKIP_REGULAR_EXPRESSION "${arg_SKIP}" LABELS processes)
          if("busy_case" IN_LIST marks)
            set_tests_properties(${prefix}.${case} PROPERTIES
                                 PROCESSORS ${TENUTO_SLOTS_OF_A_CORE} COST 300)
          endif()
          if("long_case" IN_LIST marks)
            set_tests_properties(${prefix}.${case} PROPERTIES LABELS "processes;long" TIMEOUT 3600)
          endif()
        endif()
        set(marks "")
      endif()
    endforeach()
    if(NOT found)
      message(FATAL_ERROR "${path} has no test methods")
    endif()
  endforeach()
endfunction()
