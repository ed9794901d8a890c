package front

import (
	"encoding/pem"
	"net/url"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func mustParse(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return u
}

// execConfig returns the configuration of a plugin.
func execConfig(command string) *clientcmdapi.ExecConfig {
	return &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: command, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
}
