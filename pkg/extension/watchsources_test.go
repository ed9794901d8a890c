package extension_test

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"portico.dev/pkg/extension"
)

// printWatch watches a resource while task runs. It prints one event after each change.
func printWatch(resource extension.Resource, task extension.Background, changes ...func()) {
	if err := watchAndPrint(resource, task, changes); err != nil {
		fmt.Println(err)
	}
}

func watchAndPrint(resource extension.Resource, task extension.Background, changes []func()) error {
	host, err := extension.New(extension.Config{Resources: []extension.Resource{resource}, Authenticator: byHeader{}, Authorizer: byHeader{},
		GetCertificate: noCertificate})
	if err != nil {
		return err
	}
	server := httptest.NewServer(host.Handler())
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	if task.Run != nil {
		tasks.Go(func() {
			if err := task.Run(ctx); err != nil {
				fmt.Println(err)
			}
		})
	}
	gvr := resource.GroupVersionResource()
	url := fmt.Sprintf("%s/apis/%s/%s/%s?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", server.URL, gvr.Group, gvr.Version, gvr.Resource)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("X-Test-User", "alice")
	response, err := server.Client().Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	events := json.NewDecoder(response.Body)
	var e struct {
		Type   string
		Object Job
	}
	if err := events.Decode(&e); err != nil || e.Type != "BOOKMARK" {
		return fmt.Errorf("the watch begins with %q, %v", e.Type, err)
	}
	for _, change := range changes {
		change()
		if err := events.Decode(&e); err != nil {
			return err
		}
		fmt.Println(e.Type, e.Object.Name, e.Object.State)
	}
	return nil
}

// noCertificate is for hosts that only use their handler.
func noCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.ErrUnsupported }

// fakeDatabase is a database with one table of names and states, for database/sql.
type fakeDatabase struct {
	mu     sync.Mutex
	states map[string]string
}

// set changes a row; an empty state deletes it.
func (d *fakeDatabase) set(name, state string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.states = map[string]string{name: state}
	if state == "" {
		delete(d.states, name)
	}
}

func (d *fakeDatabase) Connect(context.Context) (driver.Conn, error) { return fakeConn{d}, nil }
func (d *fakeDatabase) Driver() driver.Driver                        { return nil }

type fakeConn struct{ *fakeDatabase }

func (fakeConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (fakeConn) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }
func (fakeConn) Close() error                        { return nil }

func (c fakeConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := &fakeRows{}
	for name, state := range c.states {
		rows.rows = append(rows.rows, [2]string{name, state})
	}
	return rows, nil
}

type fakeRows struct{ rows [][2]string }

func (*fakeRows) Columns() []string { return []string{"name", "state"} }
func (*fakeRows) Close() error      { return nil }

func (r *fakeRows) Next(to []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	to[0], to[1] = r.rows[0][0], r.rows[0][1]
	r.rows = r.rows[1:]
	return nil
}
