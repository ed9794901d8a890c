package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// headers collects repeated -H flags.
type headers []string

func (h *headers) String() string     { return strings.Join(*h, ", ") }
func (h *headers) Set(v string) error { *h = append(*h, v); return nil }

// request is the command http, a replacement for curl, which a fresh machine may not have. It prints the status line, the
// headers and the body.
//
//	-H 'Name: value'     a header, repeatable
//	-cacert FILE         trust this CA
//	-servername NAME     expect this name in the server's certificate
//	-cert FILE -key FILE client certificate
//	-data FILE           request body
func request(ts *testscript.TestScript, args []string) {
	var h headers
	flags := flag.NewFlagSet("http", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Var(&h, "H", "")
	caFile, serverName := flags.String("cacert", "", ""), flags.String("servername", "", "")
	certFile, keyFile := flags.String("cert", "", ""), flags.String("key", "", "")
	dataFile := flags.String("data", "", "")
	ts.Check(flags.Parse(args))
	if flags.NArg() != 2 {
		ts.Fatalf("http has other arguments, want a method and a URL")
	}

	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: *serverName}
	if *caFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(ts.ReadFile(*caFile))) {
			ts.Fatalf("file %s has no certificate, want at least one", *caFile)
		}
	}
	if *certFile != "" {
		pair, err := tls.X509KeyPair([]byte(ts.ReadFile(*certFile)), []byte(ts.ReadFile(*keyFile)))
		ts.Check(err)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // as curl: independent of the CAs that the server lists
	}
	var body io.Reader
	if *dataFile != "" {
		body = strings.NewReader(ts.ReadFile(*dataFile))
	}
	r, err := http.NewRequest(flags.Arg(0), flags.Arg(1), body)
	ts.Check(err)
	for _, line := range h {
		name, value, _ := strings.Cut(line, ":")
		r.Header.Add(name, strings.TrimSpace(value))
	}
	ts.Check(roundTrip(ts.Stdout(), r, config))
}

func roundTrip(w io.Writer, r *http.Request, config *tls.Config) error {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s %s\n", response.Proto, response.Status)
	names := make([]string, 0, len(response.Header))
	for name := range response.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range response.Header[name] {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}
	fmt.Fprintf(&out, "\n%s\n", body)
	_, err = w.Write(out.Bytes())
	return err
}
