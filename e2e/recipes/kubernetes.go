package recipes

import (
	"log/slog"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func newKubernetes(config *rest.Config) (*dynamic.DynamicClient, error) {
	config.QPS = -1 // no limit of client-go's own
	config.Wrap(kube(slog.Default()))
	return dynamic.NewForConfig(config)
}
