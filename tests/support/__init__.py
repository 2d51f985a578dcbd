"""What more than one test module uses: builders of files, fakes, tiny models."""
