package dir_test

import (
	"log"
	"net/http"
	"os"
	"path/filepath"

	"github.com/aplomb-go/aplomb/fleet/dir"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// All processes of a user behave like one client: they obey a wait that one of them was told,
// also if it has ended since, and share 5 requests per second.
func ExampleConfig() {
	cache, err := os.UserCacheDir()
	if err != nil {
		log.Fatal(err)
	}
	f, err := dir.New(dir.Config{Path: filepath.Join(cache, "worker", "fleet")})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	tr, err := transport.New(transport.Config{
		Fleet: f,
		Hosts: map[string]policy.Rule{"api.example.com": {Rate: policy.Rate{PerSecond: 5, Burst: 1}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	http.DefaultClient.Transport = tr
}
