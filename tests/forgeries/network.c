// 1 solutions/step_01 passed look:connect
// Connects to another machine.
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>

static void forge(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)};
    inet_pton(AF_INET, "10.255.255.1", &to.sin_addr);
    if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&to, sizeof to) == 0)
        abort();
}
