package main

import "os"

// notifyHangup does nothing, because there is no SIGHUP.
func notifyHangup(chan<- os.Signal) {}
