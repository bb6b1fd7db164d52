/* A backend at port 9000. The program accepts an upgrade to any protocol and echoes all bytes. It responds with 200 to other requests.
   X-Pod in the responses has the name of the pod. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }

static int put(int to, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(to, bytes, count);
    if (written <= 0) return 0;
    bytes += written;
    count -= written;
  }
  return 1;
}

/* Reads a head, byte by byte so that nothing behind it is taken. */
static int head(int from, char *text, size_t size) {
  size_t length = 0;
  while (length < size - 1 && read(from, text + length, 1) == 1) {
    text[++length] = 0;
    if (length >= 4 && !strcmp(text + length - 4, "\r\n\r\n")) return 1;
  }
  return 0;
}

static void serve(int connection, const char *pod) {
  char text[16384], answer[512];
  while (head(connection, text, sizeof text)) {
    int upgrade = strcasestr(text, "\r\nupgrade: echo\r\n") != NULL;
    snprintf(answer, sizeof answer, "HTTP/1.1 %s\r\nX-Pod: %s\r\n\r\n", upgrade
        ? "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo" : "200 OK\r\nContent-Length: 0", pod);
    if (!put(connection, answer, strlen(answer))) return;
    if (!upgrade) continue;
    ssize_t count;
    while ((count = read(connection, text, sizeof text)) > 0 && put(connection, text, count)) {}
    return;
  }
}

int main(void) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(9000)};
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  char pod[256] = "";
  gethostname(pod, sizeof pod - 1);
  signal(SIGTERM, end);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 64)) return 1;
  for (;;) {
    int connection = accept(listener, NULL, NULL);
    if (connection < 0) continue;
    if (fork() == 0) {
      serve(connection, pod);
      _exit(0);
    }
    close(connection);
  }
}
