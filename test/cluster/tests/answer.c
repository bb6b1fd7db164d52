/* The pod of the harness's tests. The program responds to connections at port 8080 with its name. Arguments:
   hang: ignores SIGTERM; ask ADDRESS PORT: prints the response from there; connect ADDRESS PORT: connects;
   show FILE: prints a file. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in at(const char *address, int port) {
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port)};
  inet_pton(AF_INET, address, &where.sin_addr);
  return where;
}

static int print(int from) {
  char buffer[4096];
  ssize_t count;
  while ((count = read(from, buffer, sizeof buffer)) > 0) {
    if (write(1, buffer, count) != count) return 1;
  }
  return count < 0;
}

static int visit(const char *address, int port, int listen) {
  struct sockaddr_in there = at(address, port);
  int connection = socket(AF_INET, SOCK_STREAM, 0);
  alarm(5);
  if (connect(connection, (struct sockaddr *)&there, sizeof there)) return 1;
  return listen ? print(connection) : 0;
}

static void end(int signal) { (void)signal; _exit(0); }

static int serve(void) {
  struct sockaddr_in here = at("0.0.0.0", 8080);
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  char name[256] = "";
  gethostname(name, sizeof name - 2);
  strcat(name, "\n");
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 64)) return 1;
  for (;;) {
    int connection = accept(listener, NULL, NULL);
    if (connection < 0) continue;
    if (write(connection, name, strlen(name)) < 0) { /* The other end went away. */ }
    close(connection);
  }
}

int main(int count, char **arguments) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, end);
  if (count == 4 && !strcmp(arguments[1], "ask")) return visit(arguments[2], atoi(arguments[3]), 1);
  if (count == 4 && !strcmp(arguments[1], "connect")) return visit(arguments[2], atoi(arguments[3]), 0);
  if (count == 3 && !strcmp(arguments[1], "show")) return print(open(arguments[2], O_RDONLY));
  if (count == 2 && !strcmp(arguments[1], "hang")) signal(SIGTERM, SIG_IGN);
  return serve();
}
