# What `cmake --install` puts into its prefix, by component: programs (with man page and
# completion), documents (with examples), libraries (with their headers and the CMake package
# `tenuto`), and from python/CMakeLists.txt python, the Python package. `uninstall` takes it back.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tenuto)

# Schedules and prices need no wire; communicators need OpenSSL, and UCX if they were built with it.
# Apart, so that a machine without these can use the former.
set(tenuto_plan_folders base ir world collective sim monitor plan adapt)
set(tenuto_runtime_folders transport runtime communicator)
# Libraries in folders below these, whose headers are installed with theirs.
set(tenuto_plan_parts)
set(tenuto_runtime_parts transport_tcp transport_ucx transport_process)
foreach(component plan runtime)
  foreach(folder ${tenuto_${component}_folders})
    install(TARGETS tenuto_${folder} EXPORT tenuto-${component}
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libraries)
    # Headers of libraries that our users need not have stay out.
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/${folder}
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tenuto COMPONENT libraries
            FILES_MATCHING PATTERN "*.h" PATTERN world/toml.h EXCLUDE
            PATTERN transport/bytes.h EXCLUDE PATTERN transport/tcp EXCLUDE
            PATTERN transport/ucx/address.h EXCLUDE PATTERN transport/ucx/engine.h EXCLUDE
            PATTERN transport/ucx/frame.h EXCLUDE PATTERN transport/ucx/link_rate.h EXCLUDE
            PATTERN sim/page EXCLUDE)
  endforeach()
  foreach(part ${tenuto_${component}_parts})
    install(TARGETS tenuto_${part} EXPORT tenuto-${component}
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libraries)
  endforeach()
  install(EXPORT tenuto-${component} NAMESPACE tenuto:: DESTINATION ${package_folder}
          FILE tenuto-${component}.cmake COMPONENT libraries)
endforeach()
# The one header of this folder that others include.
install(FILES ${PROJECT_SOURCE_DIR}/src/transport/tcp/tcp.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tenuto/transport/tcp COMPONENT libraries)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tenuto-config.cmake.in
                              ${PROJECT_BINARY_DIR}/generated/tenuto-config.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/tenuto-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/tenuto-config.cmake
              ${PROJECT_BINARY_DIR}/generated/tenuto-config-version.cmake
        DESTINATION ${package_folder} COMPONENT libraries)

# Documents and examples lie to each other as in the source tree: their links lead somewhere.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
              ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documents)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documents)
install(FILES ${PROJECT_SOURCE_DIR}/fuzz/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/fuzz
        COMPONENT documents)

if(TENUTO_PROGRAMS)
  install(TARGETS tenuto tenuto-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
          COMPONENT programs)
  if(TENUTO_TORCH)
    install(TARGETS tenuto-worker-paced RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
            COMPONENT programs)
  endif()
  # The command line tells about itself.
  set(shell_files)
  foreach(file "man tenuto.1" "bash tenuto.bash" "zsh _tenuto" "fish tenuto.fish")
    separate_arguments(words UNIX_COMMAND "${file}")
    list(GET words 0 kind)
    list(GET words 1 name)
    set(output ${PROJECT_BINARY_DIR}/generated/${name})
    add_custom_command(OUTPUT ${output} COMMAND tenuto completion ${kind} > ${output}
                       DEPENDS tenuto VERBATIM)
    list(APPEND shell_files ${output})
  endforeach()
  add_custom_target(tenuto_shell_files ALL DEPENDS ${shell_files})
  install(FILES ${PROJECT_BINARY_DIR}/generated/tenuto.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
          COMPONENT programs)
  install(FILES ${PROJECT_BINARY_DIR}/generated/tenuto.bash RENAME tenuto
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT programs)
  install(FILES ${PROJECT_BINARY_DIR}/generated/_tenuto
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT programs)
  install(FILES ${PROJECT_BINARY_DIR}/generated/tenuto.fish
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT programs)
endif()

add_custom_target(uninstall
  COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
          -P ${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake VERBATIM)
