package environment

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"portico.dev/e2e/programs"
)

// Nginx returns the path of nginx, or an empty string if it is not installed.
func Nginx() string {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// nginxConfig configures a single process with the TLS parameters and backend connections of the bare proxy. With
// MaxAge, it caches responses and makes equal requests wait for one response.
var nginxConfig = template.Must(template.New("nginx").Parse(`
daemon off; master_process off; pid {{.Dir}}/pid; error_log stderr error;
worker_rlimit_nofile 65536;
events { worker_connections 16384; }
http {
	access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; tcp_nodelay on;
	client_body_temp_path {{.Dir}}/body; proxy_temp_path {{.Dir}}/proxy; fastcgi_temp_path {{.Dir}}/fastcgi;
	uwsgi_temp_path {{.Dir}}/uwsgi; scgi_temp_path {{.Dir}}/scgi;
	proxy_cache_path {{.Dir}}/cache keys_zone=shared:10m max_size=64m inactive=10m;
	upstream backend { server {{.Backend}}; keepalive 300; keepalive_requests 1000000000; keepalive_timeout 600s; }
	server {
		listen {{.Address}} ssl http2; http2_max_concurrent_streams 250;
		ssl_certificate {{.Dir}}/serving.crt; ssl_certificate_key {{.Dir}}/serving.key; ssl_protocols TLSv1.3;
		location / {
			proxy_pass https://backend; proxy_http_version 1.1; proxy_buffers 16 32k; proxy_buffer_size 32k;
			proxy_ssl_certificate {{.Dir}}/client.crt; proxy_ssl_certificate_key {{.Dir}}/client.key;
			proxy_ssl_trusted_certificate {{.Dir}}/ca.crt; proxy_ssl_verify on; proxy_ssl_name {{.ServerName}}; proxy_ssl_server_name on;
			proxy_ssl_protocols TLSv1.3;
			proxy_set_header Connection ""; proxy_set_header Authorization "";
			proxy_set_header X-Remote-User alice; proxy_set_header X-Remote-Group dev;
			{{- if .MaxAge}}
			proxy_cache shared; proxy_cache_valid 200 {{.MaxAge}}s; proxy_cache_lock on; proxy_cache_key $request_uri$http_accept;
			{{- end}}
		}
	}
}
`))

// StartNginx starts a proxy to the backend. With a maxAge, in whole seconds, it caches the responses of the backend
// for all users.
func (y *Environment) StartNginx(name string, maxAge time.Duration) (*Server, error) {
	dir, err := y.Dir(strings.ReplaceAll(name, " ", "-")) // the template does not quote paths
	if err != nil {
		return nil, err
	}
	port, err := y.port()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", port)
	var config bytes.Buffer
	if err := nginxConfig.Execute(&config, map[string]any{
		"Dir": dir, "Backend": y.orders.Backend, "Address": address, "ServerName": y.orders.BackendServerName, "MaxAge": int(maxAge / time.Second),
	}); err != nil {
		return nil, err
	}
	for file, data := range map[string][]byte{
		"nginx.conf": config.Bytes(), "serving.crt": y.orders.Serving.Certificate, "serving.key": y.orders.Serving.Key,
		"client.crt": y.orders.Client.Certificate, "client.key": y.orders.Client.Key, "ca.crt": y.orders.CA,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			return nil, err
		}
	}
	p, err := programs.Start(name, dir, nil, y.log, Nginx(), "-p", dir, "-c", filepath.Join(dir, "nginx.conf"), "-e", "stderr")
	if err != nil {
		return nil, err
	}
	y.ends = append(y.ends, func() error {
		_, err := p.Stop(os.Interrupt)
		return err
	})
	err = programs.Poll(p.Exited(), func() error {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		return errors.Join(err, closed(conn))
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w\n%s", name, err, p.Output())
	}
	return &Server{Name: name, Address: address, PID: p.PID(), roots: y.ca.PEM()}, nil
}

func closed(conn net.Conn) error {
	if conn == nil {
		return nil
	}
	return conn.Close()
}
