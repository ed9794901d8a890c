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

// NotifyServiceManager notifies the service manager that started the program (systemd units with Type=notify). It sends READY=1
// immediately, WATCHDOG=1 as often as the service manager requires, and STOPPING=1 when ctx ends. It then returns. Without a
// service manager it only waits.
//
// The watchdog message does not depend on any check, not even /livez: neither an unavailable etcd nor a flood of clients may
// cause the process to be killed. It stops only if the process is stopped or its goroutines are not scheduled.
//
// Errors neither fail the program nor delay its end. The socket may be inherited from a shell and not be read, and a service
// manager that misses a message reports that.
func NotifyServiceManager(ctx context.Context, log *zap.Logger) error {
	sendState(log, daemon.SdNotifyReady)
	defer sendState(log, daemon.SdNotifyStopping)
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("invalid watchdog settings of the service manager; no keep-alive messages are sent", zap.Error(err))
	}
	if err != nil || every < 2*time.Nanosecond {
		<-ctx.Done()
		return nil
	}
	return Every(ctx, every/2, func(context.Context) { sendState(log, daemon.SdNotifyWatchdog) })
}

// notifyTimeout bounds the delay by a service manager that does not read. Its socket buffers as few as ten messages.
const notifyTimeout = time.Second

// sendState sends a state to the service manager, and logs a failure.
func sendState(log *zap.Logger, state string) {
	if err := writeState(os.Getenv("NOTIFY_SOCKET"), state); err != nil {
		log.Warn("failed to notify the service manager", zap.String("state", state), zap.Error(fmt.Errorf("NOTIFY_SOCKET: %w", err)))
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
