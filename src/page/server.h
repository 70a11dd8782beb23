// A small HTTP server that no client can make grow, wait or fail.
//
// Idea:  one thread, one poll() over all connections, one request for each. Each connection has a
//        deadline for its request and one for its answer. The numbers of connections and of answers
//        a second are limited, and who comes above that gets 503. A client that never reads, or
//        sends a byte an hour, costs one place until its deadline.
// Right: tests/page/server_test.cc, over loopback sockets, with a clock that is moved by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unit.h"
#include "page/http.h"

namespace tenuto::page {

// What clients may take.
struct ServerLimits {
  size_t connections = 64;                    // at once; further ones get 503
  int32_t answers = 200;                      // a second; further requests get 503
  Duration read = std::chrono::seconds(5);    // from the connection to the end of the request
  Duration wait = std::chrono::seconds(15);   // from there to an answer that comes later
  Duration write = std::chrono::seconds(5);   // from the answer until the client has read it
  Duration linger = std::chrono::seconds(1);  // from there until the client closes
  RequestLimits request;
};

// Answers a request at once; none = the answer comes later, through HttpServer::answer with this
// ticket. Called by the thread of turn().
using Handler = std::function<std::optional<HttpResponse>(const HttpRequest&, int64_t ticket)>;

// The server. All but answer() belongs to one thread.
class HttpServer {
 public:
  // Listens at host:port; port 0 = any free one. `clock` must outlive the server.
  //
  // Errors: Invalid/Call  the address is no address of this host, or its port is taken
  static Result<std::unique_ptr<HttpServer>> listen(const std::string& address,
                                                    const ServerLimits& limits, Handler handler,
                                                    const Clock& clock);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  // The port at which it listens.
  uint16_t port() const { return port_; }
  // How many connections there are.
  size_t connections() const { return connections_.size(); }
  // How many bytes it keeps for them: of requests that have not come whole, and of answers that are
  // not sent whole.
  size_t bytes() const;
  // Waits for something to do, at most for `limit` (zero = not at all), and does it.
  void turn(Duration limit);

  // Answers a request whose handler returned none. Nothing happens if its client is gone. Any
  // thread.
  void answer(int64_t ticket, HttpResponse response);
  // Ends the present turn(), or the next one. Any thread.
  void wake() const;

 private:
  // Reading: the request. Waiting: for an answer that comes later. Writing: the answer. Leaving:
  // all is said, and what still comes is thrown away until the client closes. Without that a client
  // that still sends would get an error instead of the answer.
  enum class State : uint8_t { Reading, Waiting, Writing, Leaving };
  struct Connection {
    int socket = -1;
    State state = State::Reading;
    Duration deadline{};
    std::string bytes;  // Reading: what has come; Writing: what is to be sent
    size_t sent = 0;
    bool with_body = true;
  };

  HttpServer(int listener, int waker, const ServerLimits& limits, Handler handler,
             const Clock& clock);
  int milliseconds_until_due(Duration limit) const;
  void accept_all(Duration now);
  void refuse_at_door(int socket) const;
  void take_answers(Duration now);
  // Each returns false when the connection is over.
  bool serve(int64_t ticket, Connection& connection, Duration now);
  bool read(int64_t ticket, Connection& connection, Duration now);
  bool write(Connection& connection, Duration now);
  bool leave(Connection& connection) const;
  bool expire(Connection& connection, Duration now);
  bool say(Connection& connection, const HttpResponse& response, Duration now);
  bool may_answer(Duration now);

  const int listener_, waker_;
  const ServerLimits limits_;
  const Handler handler_;
  const Clock& clock_;
  uint16_t port_ = 0;
  int64_t next_ticket_ = 0;
  std::map<int64_t, Connection> connections_;  // by ticket
  Duration deaf_until_{};                      // the process may open no more files
  Duration second_{};                          // the second that answers are counted in
  int32_t answers_ = 0;
  std::mutex mutex_;  // guards answered_, and nothing else is locked under it
  std::vector<std::pair<int64_t, HttpResponse>> answered_;  // at most one for each connection
};

}  // namespace tenuto::page
