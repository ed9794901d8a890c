// Command server is an extension server: it serves the files of a directory as mailboxes.mail.example.com.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"portico.dev/pkg/extension"
)

// Mailbox is the kind. Nothing is generated for it.
type Mailbox struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Bytes             int64 `json:"bytes" description:"How much mail lies in it."`
}

func main() {
	var options extension.Options
	options.AddFlags(pflag.CommandLine)
	spool := pflag.String("spool", "/var/mail", "directory with a file for each mailbox")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	list := func(context.Context, extension.Query) (all []Mailbox, err error) {
		files, err := os.ReadDir(*spool)
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				all = append(all, Mailbox{ObjectMeta: metav1.ObjectMeta{Name: f.Name()}, Bytes: info.Size()})
			}
		}
		return all, err
	}
	mailboxes := extension.Of(extension.Definition[Mailbox]{
		Group: "mail.example.com", Version: "v1", Plural: "mailboxes", Kind: "Mailbox",
	}, extension.ListFunc[Mailbox](list))
	if err := extension.Serve(ctx, options, mailboxes); err != nil {
		log.Fatal(err)
	}
}
