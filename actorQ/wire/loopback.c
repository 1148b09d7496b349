/* Preloaded into the learner: its server is reached from this machine alone.
 *
 * Reverb's server listens at [::], and no argument says otherwise. Here a TCP socket that would be
 * bound to every address is bound to 127.0.0.1 instead. A socket for IPv6 takes IPv4's mapped form
 * of that address, so that it stays open to IPv4.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* Tells that the library is loaded. */
const int actorq_loopback = 1;

static int option(int fd, int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(fd, level, name, &value, &size) == 0 ? value : 0;
}

int bind(int fd, const struct sockaddr *address, socklen_t length) {
    static int (*next)(int, const struct sockaddr *, socklen_t);
    if (!next) {
        *(void **)&next = dlsym(RTLD_NEXT, "bind");
    }
    if (address && option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM) {
        if (address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
            struct sockaddr_in v4;
            memcpy(&v4, address, sizeof v4);
            if (v4.sin_addr.s_addr == htonl(INADDR_ANY)) {
                v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                return next(fd, (const struct sockaddr *)&v4, sizeof v4);
            }
        } else if (address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
            struct sockaddr_in6 v6;
            memcpy(&v6, address, sizeof v6);
            if (IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) {
                if (option(fd, IPPROTO_IPV6, IPV6_V6ONLY)) {
                    v6.sin6_addr = in6addr_loopback;
                } else {
                    static const unsigned char mapped[16] = {
                        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1,
                    };
                    memcpy(&v6.sin6_addr, mapped, sizeof mapped);
                }
                return next(fd, (const struct sockaddr *)&v6, sizeof v6);
            }
        }
    }
    return next(fd, address, length);
}
