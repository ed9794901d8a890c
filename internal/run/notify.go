package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
)

// NotifyServiceManager tells the service manager that started the program when it is ready, that it lives, and when it
// stops (systemd's units of Type=notify): READY=1 at once, WATCHDOG=1 as often as the service manager asks for, and
// STOPPING=1 when ctx ends. It then returns. Without a service manager it only waits.
//
// The watchdog message depends on nothing, not even /livez: neither a dead etcd nor a flood of clients may have the
// process killed. It ends with a process that is stopped or whose goroutines do not get to run.
//
// Nothing here fails the program, or delays its end. The socket may be one that a shell inherited and that is not read,
// and a service manager that got no message reports it itself.
func NotifyServiceManager(ctx context.Context, log *zap.Logger) error {
	sendState(log, daemon.SdNotifyReady)
	defer sendState(log, daemon.SdNotifyStopping)
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the service manager's watchdog gets no sign of life", zap.Error(err))
	}
	if err != nil || every < 2*time.Nanosecond {
		<-ctx.Done()
		return nil
	}
	return Every(ctx, every/2, func(context.Context) { sendState(log, daemon.SdNotifyWatchdog) })
}

// notifyTimeout is how long a service manager that does not read may delay a message. Its socket holds as few as ten.
const notifyTimeout = time.Second

// sendState tells the service manager of a state, and logs when that fails.
func sendState(log *zap.Logger, state string) {
	if err := writeState(os.Getenv("NOTIFY_SOCKET"), state); err != nil {
		log.Warn("the service manager was not told", zap.String("state", state), zap.Error(fmt.Errorf("NOTIFY_SOCKET: %w", err)))
	}
}

// writeState is daemon.SdNotify with a deadline.
func writeState(socket, state string) error {
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	err = conn.SetWriteDeadline(time.Now().Add(notifyTimeout))
	if err == nil {
		_, err = conn.Write([]byte(state))
	}
	return errors.Join(err, conn.Close())
}
