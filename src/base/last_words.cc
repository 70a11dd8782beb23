#include "base/last_words.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

namespace tenuto {

namespace {

const char* program_name = "tenuto";

// Nothing below allocates memory: there may be none left.
void say(const char* text) {
  const ssize_t ignored = ::write(STDERR_FILENO, text, std::strlen(text));
  (void)ignored;
}

void say_number(uint64_t number) {
  char digits[24];
  char* first = digits + sizeof(digits) - 1;
  *first = '\0';
  do {
    *--first = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0);
  say(first);
}

// Says how much memory this process may have, if that is limited; false when it is not.
bool say_limit(const char* before) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  say(before);
  say("the limit of this process is ");
  say_number(limit.rlim_cur >> 20);
  say(" MiB of memory (ulimit -v)");
  return true;
}

[[noreturn]] void end_without_memory() {
  say(program_name);
  say(": out of memory: ");
  say(say_limit("") ? " and it needs more" : "this machine has too little free memory");
  say("; use a smaller job, or give it more memory\n");
  ::_exit(1);
}

[[noreturn]] void end_with(const char* what, const char* detail) {
  say(program_name);
  say(": ");
  say(what);
  // Print only the first line: libraries append a stack trace.
  char line[512];
  size_t length = 0;
  while (detail[length] != '\0' && detail[length] != '\n' && length + 1 < sizeof(line)) {
    line[length] = detail[length];
    ++length;
  }
  line[length] = '\0';
  say(line);
  // Under a memory limit, starting a thread or making a buffer can fail with other messages.
  say(say_limit("; ") ? ", which may be the cause\n" : "\n");
  ::_exit(1);
}

[[noreturn]] void end_of_exception() {
  if (std::current_exception() == nullptr) end_with("the program ended in ", "std::terminate");
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    end_without_memory();
  } catch (const std::length_error&) {
    end_without_memory();  // an array larger than any memory
  } catch (const std::system_error& error) {
    end_with("the system refused a resource that the program needs, such as a thread: ",
             error.what());
  } catch (const std::exception& error) {
    // torch reports a failed allocation with one of these phrases.
    const bool memory = std::strstr(error.what(), "allocate memory") != nullptr ||
                        std::strstr(error.what(), "out of memory") != nullptr;
    end_with(memory ? "out of memory: " : "unexpected error: ", error.what());
  } catch (...) {
    end_with("unexpected error: ", "an exception without a message");
  }
}

// Libraries written in C abort when they get no memory. Any other abort takes its usual course.
void on_abort(int) {
  constexpr size_t kLittle = 16 << 20;  // a thread with its stack needs as much
  void* memory = ::mmap(nullptr, kLittle, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) end_without_memory();
  ::munmap(memory, kLittle);
}

}  // namespace

void end_with_last_words(const char* program) {
  program_name = program;
  std::set_new_handler(end_without_memory);
  std::set_terminate(end_of_exception);
  std::signal(SIGABRT, on_abort);
}

}  // namespace tenuto
