"""The demo on three nodes: the owner of the busiest topic and the controller are killed, and lose their disks."""
